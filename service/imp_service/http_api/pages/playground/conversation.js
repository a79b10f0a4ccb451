'use strict'
// A conversation: turns, each with a question and one answer or more.
// An answer is shown formatted, as plain text, or as tokens; a new one as the last was.
let turns = [], running, preferred = 'formatted'
const now = turn => turn.answers[turn.at]
const all = answer => [...answer.kept, ...answer.entries]
const textOf = entries => new TextDecoder().decode(new Uint8Array(entries.flatMap(each => each.bytes)))
const STOPPED = 'you stopped it', LEFT = 'you left it'
const isOver = answer => !!(answer.end || answer.problem)
const turnNode = () => make('section', { className: 'turn' })

// The messages up to a question. A turn without an answer, such as one that failed, is not sent.
function messagesTo(text, urls, before) {
	const { value: system } = inputs.system
	const said = before.filter(turn => now(turn).text).flatMap(turn => [{ role: 'user', content: contentOf(turn.text, picturesOf(turn)) }, { role: 'assistant', content: now(turn).text }])
	return [...system ? [{ role: 'system', content: system }] : [], ...said, { role: 'user', content: contentOf(text, urls) }]
}
function send(text, urls) {
	const fields = chosen()
	if (!fields || running || !text.trim()) return false
	const messages = messagesTo(text, urls ?? takePictures(), turns), turn = { text, answers: [], at: 0, node: turnNode() }
	turns.push(turn)
	$('talk').append(turn.node)
	$('hello').hidden = true
	run(turn, { path: '/v1/chat/completions', body: { model: model.id, messages, ...fields, seed: fields.seed ?? anySeed() } })
	return true
}

// Adds an answer that begins with `before`; `kept` are its tokens, if they are known.
async function run(turn, request, { kept = [], before = textOf(kept), prompt = [], view } = {}) {
	view ??= request.body.response_format ? 'plain' : preferred
	const answer = { request, kept, before, prompt, view, isWhole: before === textOf(kept), entries: [], text: before, thought: '', n: 0, end: '', note: '' }
	turn.at = turn.answers.push(answer) - 1
	const stopper = running = new AbortController()
	const stopped = new Promise((_, fail) => { stopper.signal.onabort = () => fail(stopper.signal.reason) })
	$('go').textContent = 'Stop'
	update(turn)
	reveal(turn)
	try {
		await Promise.race([ready, stopped])
		request.body.model = model.id
		answer.began = performance.now()
		for await (const event of events(request, stopper.signal)) {
			take(answer, event)
			// Once a frame, however fast the tokens come.
			answer.frame ??= requestAnimationFrame(() => {
				answer.frame = undefined
				if (running === stopper) grow(turn)
			})
		}
		answer.end = endOf(answer)
	} catch (error) {
		if (stopper.signal.aborted) answer.end = stopper.signal.reason
		else answer.problem = error
	}
	const [earlier] = turns.slice(0, turns.indexOf(turn)).filter(each => now(each).text).slice(-1)
	answer.cells = pictureTokens(answer) - pictureTokens(earlier && now(earlier))
	if (kept.length && answer.isWhole && !request.body.stop) answer.text = textOf(all(answer))
	running = undefined
	$('go').textContent = 'Send'
	// Another conversation may be shown now.
	if (!turns.includes(turn)) return answer
	const follows = isInView(turn)
	update(turn)
	if (follows) reveal(turn)
	return answer
}
function take(answer, { error, choices, usage, isBroken }) {
	if (error) throw problem(error)
	answer.isBroken = isBroken
	if (isBroken) return
	const [choice] = choices
	const n = usage?.completion_tokens ?? answer.n
	if (n > answer.n) {
		answer.last = performance.now()
		answer.first ??= { at: answer.last, n }
	}
	Object.assign(answer, { n, usage: usage ?? answer.usage })
	if (!choice) return
	const { delta = { content: choice.text }, logprobs, prompt_token_ids: ids, finish_reason: reason } = choice
	if (ids && !answer.kept.length) answer.prompt = ids
	answer.text += delta.content ?? ''
	answer.thought += delta.reasoning_content ?? ''
	answer.entries.push(...logprobs?.content ?? [])
	answer.reason = reason ?? answer.reason
}
function endOf({ reason, n, usage, request: { body } }) {
	if (reason === 'stop') return body.stop ? 'it ended by itself or at a stop text' : 'it ended by itself'
	if (reason !== 'length') return 'the server ended it'
	if (n >= body.max_tokens && usage.total_tokens < model.size) return `it reached your limit of ${sum(body.max_tokens, 'token')}`
	return usage.total_tokens >= model.size ? `the model’s context of ${sum(model.size, 'token')} is full` : 'it reached a limit of the server'
}
// A line about an answer, and the details.
function figures({ n, usage, first, last, began, end, request, problem, isBroken }) {
	if (problem && !first) return ['']
	if (isBroken && !isOver({ end, problem })) return [`${sum(n, 'token')} · the connection broke: waiting for the server…`]
	if (!first) return [end === EDITED ? 'You wrote it.' : end ? `No token: ${end}.` : 'Waiting for the first token…']
	// Many tokens may come at once: of a short answer, the time of all of it says more.
	const rate = 1000 * (n > 10 * first.n && last - first.at > 100 ? (n - first.n) / (last - first.at) : n / (last - began))
	const line = `${sum(n, 'token')} · ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} tokens/s`
	if (!end) return [line]
	const { prompt_tokens: p, prompt_tokens_details: { cached_tokens: c, image_tokens: i } } = usage
	return [`${line} · ${end}`, `${sum(p, 'prompt token')} (${i ? `${i} of pictures, ` : ''}${c} cached) + ${n} output · first token in ${Math.round(first.at - began)} ms · seed ${request.body.seed}`]
}
