'use strict'
// Parameters: field, name, help, and the kind of input.
const KNOBS = [
	['temperature', 'Temperature', '0 always takes the likeliest token.', { min: 0, step: 'any' }],
	['top_p', 'Top p', 'Keeps the likeliest tokens that together reach this probability.', { min: 0, max: 1, step: 'any' }],
	['top_k', 'Top k', 'Keeps this many of the likeliest tokens. 0 keeps all.', { min: 0 }],
	['min_p', 'Min p', 'Drops tokens below this fraction of the likeliest one’s probability.', { min: 0, max: 1, step: 'any' }],
	['max_tokens', 'Max tokens', 'Empty: no limit.', { min: 1 }],
	['seed', 'Seed', 'Empty: a new one each time. The same seed gives the same answer.', { min: 0, max: Number.MAX_SAFE_INTEGER }],
	['stop', 'Stop sequences', 'One per line. \\n is a line break.', null],
	['system', 'System prompt', 'Instructions that the model reads first.', null],
	['response_format', 'JSON schema', 'The answer is JSON that fits it.', null],
]
const inputs = {}
for (const [name, title, help, number] of KNOBS) {
	const input = inputs[name] = number ? make('input', { type: 'number', ...number }) : make('textarea', { rows: 2 })
	input.id = name
	input.setAttribute('aria-describedby', name + '-help')
	const label = make('label', { htmlFor: name }, make('b', { textContent: title }))
	$('knobs').append(make('div', { className: number ? 'short' : '' }, label, input, make('small', { id: name + '-help', textContent: help })))
}
inputs.response_format.classList.add('code')
const mark = () => {
	for (const input of Object.values(inputs)) input.parentNode.classList.toggle('changed', input.value !== '' || input.validity.badInput)
	for (const input of Object.values(inputs)) input.setCustomValidity('')
	$('reset').hidden = !document.querySelector('.changed')
}
$('knobs').oninput = mark
$('knobs').onreset = () => setTimeout(mark)
$('knobs').onsubmit = event => event.preventDefault()

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
	return $('knobs').reportValidity() ? found : null
}
const anySeed = () => Math.floor(Math.random() * 1e6)
