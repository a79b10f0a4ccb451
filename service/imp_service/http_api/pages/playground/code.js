'use strict'
// The call as code.
const python = value => {
	if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`
	if (value && typeof value === 'object') return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(', ')}}`
	return { true: 'True', false: 'False', null: 'None' }[value] ?? JSON.stringify(value)
}
// Each message on a line of its own.
const lines = (value, write) => value?.[0]?.role ? `[\n${value.map(each => `      ${write(each)}`).join(',\n')}\n    ]` : write(value)
const json = body => `{\n${Object.entries(body).map(([name, value]) => `    "${name}": ${lines(value, each => JSON.stringify(each))}`).join(',\n')}\n  }`
// Fields that OpenAI's client does not know.
const OWN = ['top_k', 'min_p', 'continue_final_message']
const CODE = {
	curl: ({ path, body }) => `curl ${location.origin}${path} \\\n  -H 'content-type: application/json' \\\n${key && '  -H "authorization: Bearer $IMP_KEY" \\\n'}  -d '${json(body).replaceAll("'", "'\\''")}'`,
	python({ body }) {
		const of = isOwn => Object.fromEntries(Object.entries(body).filter(([name]) => OWN.includes(name) === isOwn)), extra = of(true)
		const fields = { ...of(false), ...Object.keys(extra).length && { extra_body: extra } }
		const [kind, text] = body.messages ? ['chat.completions', 'message.content'] : ['completions', 'text']
		return `${key && 'import os\n\n'}from openai import OpenAI\n\nclient = OpenAI(base_url=${python(location.origin + '/v1')}, api_key=${key ? 'os.environ["IMP_KEY"]' : '"none"'})\nanswer = client.${kind}.create(\n${Object.entries(fields).map(([name, value]) => `    ${name}=${lines(value, python)},\n`).join('')})\nprint(answer.choices[0].${text})`
	},
}
// A picture has too many bytes to be read, and for a command line.
const shortened = body => JSON.parse(JSON.stringify(body, (name, value) => name === 'url' ? value.replace(/,.*/, ',…') : value))
function showCode({ path, body }) {
	const request = { path, body: shortened(body) }
	const pick = kind => {
		for (const each of ['curl', 'python']) $(each).ariaSelected = String(each === kind)
		$('call').textContent = CODE[kind](request)
	}
	$('curl').onclick = () => pick('curl')
	$('python').onclick = () => pick('python')
	pick('curl')
	$('code').showModal()
}
async function copy(text, by) {
	try { await navigator.clipboard.writeText(text) } catch {
		// Without TLS, browsers do not offer navigator.clipboard.
		const area = make('textarea', { value: text })
		by.after(area)
		area.select()
		document.execCommand('copy')
		area.remove()
		by.focus()
	}
	by.old ??= [...by.childNodes]
	by.replaceChildren(by.firstElementChild ? icon('done') : 'Copied')
	$('news').textContent = 'Copied'
	await sleep(1200)
	by.replaceChildren(...by.old)
	$('news').textContent = ''
}
