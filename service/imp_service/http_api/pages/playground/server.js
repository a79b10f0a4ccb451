'use strict'
// Talking with the server.
const MODELS = '/v1/models'
let key = store.impKey ?? '', model = { id: '', size: Infinity }, ready, asking
const WORDS = {
	context_length_exceeded: 'The conversation is longer than the model can read. Start a new chat, or edit an earlier message.',
	rate_limit_exceeded: 'The server is busy. Try again in a moment.',
	resume_mismatch: 'The connection broke, and another model or another version of the server answers now.',
	draining: 'The server is stopping.', aborted: 'Somebody with access to the server ended this answer.',
}
const SILENT = 'The server does not answer. Is it still running?'
const BROKEN = 'The connection broke before the answer was complete. Is the server still running? What had arrived is kept.'
function problem({ code, message, param } = {}, status = '') {
	const text = message ? message[0].toUpperCase() + message.slice(1) : `The server answered ${status}`
	return Object.assign(Error(`${WORDS[code] ?? 'The server could not do this.'} ${text}.`), { code, param })
}
function askKey() {
	$('wrong').textContent = key && 'The server does not know this key.'
	$('lock').hidden = false
	$('key').focus()
	return asking ??= new Promise(done => {
		$('lock').onsubmit = event => {
			event.preventDefault()
			key = store.impKey = $('key').value
			$('lock').hidden = true
			$('lock').reset()
			$('text').focus()
			done(asking = undefined)
		}
	})
}
const broken = words => Object.assign(Error(words), { isBroken: true })
// A browser's own words for a connection that failed say little.
const inWords = (work, words, signal) => work.catch(error => { throw signal?.aborted ? error : broken(words) })
async function call(path, body, signal) {
	for (;;) {
		const headers = { 'content-type': 'application/json', ...key && { authorization: `Bearer ${key}` } }
		const reply = await inWords(fetch(path, { method: body ? 'POST' : 'GET', headers, body, signal }), SILENT, signal)
		if (reply.ok) return reply
		const { error } = await reply.json().catch(() => ({}))
		if (reply.status === 401) await askKey()
		else if (error?.code === 'loading' && path !== MODELS) await connect()
		else throw problem(error, reply.status)
	}
}
const connect = () => ready = begin()
async function begin() {
	for (;;) {
		try {
			const { data: [{ id, max_model_len: size, max_output_tokens: most, default_sampling: sampling, default_sampling_origins: origins, input_modalities: modalities, output_modalities: outputs }] } = await (await call(MODELS)).json()
			model = { id, size, seesPictures: modalities.includes('image') }
			$('picture').hidden = !model.seesPictures
			$('model').textContent = $('model').title = $('name').textContent = id
			document.title = `${id} · imp`
			const canChat = outputs.includes('text')
			$('state').textContent = canChat ? '' : `${id} is an embedding model: it makes ${outputs.join(' and ')} of texts, and it cannot chat.`
			for (const part of ['ask', 'knobs', 'ideas', 'tune', 'fresh', 'kept', 'list']) $(part).hidden = !canChat
			$('name').parentElement.hidden = !canChat
			showDefaults({ size, most, sampling, origins })
			return
		} catch (error) {
			$('state').textContent = error.code === 'loading' ? 'The model is loading…' : error.message
			await sleep(500)
		}
	}
}
// How long an answer whose stream broke waits for the server, and errors that pass by themselves.
const PATIENCE = 20_000, PASSING = ['draining', 'rate_limit_exceeded']
// The events of an answer. If its stream breaks, it goes on where it was, as soon as a server answers; until then an event says so.
async function* events({ path, body }, signal) {
	const look = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, return_token_ids: true }
	const scores = body.messages ? { logprobs: true, top_logprobs: 5 } : { logprobs: 5 }
	const came = {}
	for (let since, pause; ;) {
		try {
			const reply = await call(path, JSON.stringify({ ...body, ...look, ...scores, resume: came }), signal)
			for await (const event of unitsOf(reply, came, signal)) {
				since = undefined
				if (event === '[DONE]') return
				yield JSON.parse(event)
			}
		} catch (error) {
			if (signal.aborted || !came.origin || !(error.isBroken || PASSING.includes(error.code))) throw error
			if (!since) [since, pause] = [performance.now(), 50]
			else if (performance.now() - since > PATIENCE) throw Error(BROKEN)
			yield { isBroken: true }
			await sleep(pause = Math.min(2 * pause, 2000))
		}
	}
}
// What a server sends at once, a mark and its events, counts only whole. Adds what the marks say to `came`.
async function* unitsOf(reply, came, signal) {
	let mark = {}, left = 0, held = []
	for await (const part of partsOf(reply, signal)) {
		if (part.startsWith(': imp ')) {
			mark = JSON.parse(part.slice(6))
			left = mark.events
			if (mark.end) throw broken(BROKEN)
		} else if (part.startsWith('data: ')) {
			held.push(part.slice(6))
			left--
		}
		if (left > 0) continue
		const { origin, id, created, told = [] } = mark
		if (origin) Object.assign(came, { origin, id, created, sequences: came.sequences ?? [{ token_ids: [] }] })
		for (const [i, ids] of told) came.sequences[i].token_ids.push(...ids)
		mark = {}
		yield* held.splice(0)
	}
}
async function* partsOf(reply, signal) {
	const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader()
	for (let rest = ''; ;) {
		const { done, value } = await inWords(reader.read(), BROKEN, signal)
		if (done) throw broken(BROKEN)
		const parts = (rest + value).split('\n\n')
		rest = parts.pop()
		yield* parts
	}
}
