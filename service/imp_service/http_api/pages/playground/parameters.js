'use strict'
// Parameters: field, name, help, and the kind of input.
const KNOBS = [
	['temperature', 'Temperature', '0 always takes the likeliest token.', { min: 0, step: 'any' }],
	['top_p', 'Top p', 'Keeps the likeliest tokens that together reach this probability.', { min: 0, max: 1, step: 'any' }],
	['top_k', 'Top k', 'Keeps this many of the likeliest tokens. 0 keeps all.', { min: 0 }],
	['min_p', 'Min p', 'Drops tokens below this fraction of the likeliest one’s probability.', { min: 0, max: 1, step: 'any' }],
	['max_tokens', 'Max tokens', 'Most tokens of an answer.', { min: 1 }],
	['seed', 'Seed', 'The same seed gives the same answer.', { min: 0, max: Number.MAX_SAFE_INTEGER }, 'random'],
	['stop', 'Stop sequences', 'One per line. \\n is a line break.', null, 'none'],
	['system', 'System prompt', 'Instructions that the model reads first.', null, 'as the chat template has it'],
	['response_format', 'JSON schema', 'The answer is JSON that fits it.', null, 'none'],
]
// The origins of a model's default sampler, in words.
const ORIGINS = { 'imp.conf': 'From the server’s settings.', model: 'From the model’s file.', imp: 'From imp: the model’s file has none.' }
const inputs = {}
for (const [name, title, help, number, placeholder = ''] of KNOBS) {
	const input = inputs[name] = number ? make('input', { type: 'number', placeholder, ...number }) : make('textarea', { rows: 2, placeholder })
	input.id = name
	input.setAttribute('aria-describedby', `${name}-help ${name}-origin`)
	const label = make('label', { htmlFor: name }, make('b', { textContent: title }))
	const words = make('small', {}, make('span', { id: name + '-help', textContent: help }), ' ', make('span', { id: name + '-origin' }))
	$('knobs').append(make('div', { className: number ? 'short' : '' }, label, input, words))
}
inputs.response_format.classList.add('code')
// Shows the values that hold where a field is empty.
function showDefaults({ size, most, sampling, origins }) {
	for (const [name, value] of Object.entries(sampling)) if (inputs[name]) say(name, value, ORIGINS[origins[name]])
	if (most) say('max_tokens', most, 'From the server’s settings.')
	else say('max_tokens', size, 'Up to the end of the context.')
}
function say(name, value, origin) {
	inputs[name].placeholder = value
	$(name + '-origin').textContent = origin
}
const mark = () => {
	for (const input of Object.values(inputs)) input.parentNode.classList.toggle('changed', input.value !== '' || input.validity.badInput)
	for (const input of Object.values(inputs)) input.setCustomValidity('')
	const n = $('knobs').querySelectorAll('.changed').length
	$('reset').hidden = !n
	$('tune').classList.toggle('marked', n > 0)
	$('tune').title = $('tune').ariaLabel = n ? `Parameters, ${n} changed` : 'Parameters'
}
$('knobs').oninput = mark
$('knobs').onchange = () => save()
$('knobs').onreset = () => setTimeout(() => { mark(); save() })
$('knobs').onsubmit = event => event.preventDefault()
const parameters = () => Object.fromEntries(Object.entries(inputs).filter(([, { value }]) => value).map(([name, { value }]) => [name, value]))
function setParameters(values) {
	for (const [name, input] of Object.entries(inputs)) input.value = values[name] ?? ''
	mark()
}

// The fields that the parameters set, or null if one is wrong: the browser then says which.
function chosen() {
	const found = {}
	for (const [name, , , number] of KNOBS) {
		const { value } = inputs[name]
		if (value !== '' && name !== 'system') found[name] = number ? Number(value) : value
	}
	if (found.stop) found.stop = found.stop.split('\n').filter(Boolean).map(each => each.replaceAll('\\n', '\n'))
	if (found.response_format) {
		try {
			const schema = JSON.parse(found.response_format)
			found.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema } }
		} catch (error) { inputs.response_format.setCustomValidity(`This is no JSON: ${error.message}`) }
	}
	if ($('knobs').checkValidity()) return found
	showParameters()
	$('knobs').reportValidity()
	return null
}
const anySeed = () => Math.floor(Math.random() * 1e6)
