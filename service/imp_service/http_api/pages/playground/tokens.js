'use strict'
// Tokens.
const percent = ({ logprob }) => {
	const share = Math.exp(logprob) * 100
	return `${share >= 99.95 ? '100' : share < .1 ? '< 0.1' : share.toFixed(1)} %`
}
const shown = ({ token, bytes }) => token.includes('\ufffd')
	? bytes.map(each => each.toString(16).padStart(2, '0')).join(' ')
	: token.replaceAll(' ', '␣').replaceAll('\n', '↵').replaceAll('\t', '⇥')
function addTokens(reply, answer) {
	const entries = all(answer), done = isOver(answer)
	reply.decoder ??= new TextDecoder()
	for (let i = reply.children.length; i < entries.length; i++) {
		const stream = !(done && i === entries.length - 1)
		let text = reply.decoder.decode(new Uint8Array(entries[i].bytes), { stream })
		// The tokens of a stop text are no part of the answer.
		if (done && answer.request.body.stop && !answer.thought) text = text.slice(0, Math.max(0, answer.text.length - reply.textContent.length))
		const token = make('span', { className: 'token', role: 'button', tabIndex: i ? -1 : 0, textContent: text, ariaLabel: `${shown(entries[i])}, ${percent(entries[i])}` })
		token.classList.toggle('part', !text)
		token.classList.toggle('line', text.startsWith('\n'))
		token.style.setProperty('--doubt', 1 - Math.exp(entries[i].logprob))
		reply.append(token)
	}
}
function watch(turn) {
	const { reply } = turn, node = reply.parentNode
	const card = make('div', { className: 'card', role: 'group', ariaLabel: 'What could stand here', hidden: true })
	reply.after(make('p', { className: 'soft', textContent: 'The stronger the colour, the less certain the model was. Point at a token, or use the arrow keys, to see its alternatives.' }), card)
	let open
	const close = () => { card.hidden = true; open?.classList.remove('open'); open = undefined }
	const show = token => {
		if (token === open) return
		close()
		open = token
		token.classList.add('open')
		for (const each of reply.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1
		token.tabIndex = 0
		const at = [...reply.children].indexOf(token), entry = all(now(turn))[at]
		const items = entry.top_logprobs.some(each => each.token_id === entry.token_id) ? entry.top_logprobs : [...entry.top_logprobs, entry]
		const isFixed = hasPictures(now(turn))
		card.replaceChildren(make('p', { className: 'soft', textContent: isFixed ? 'With a picture, an answer continues from none:' : 'Choose one to continue from it:' }), ...items.map(each => {
			const choice = button('', () => goOn(turn, at, each))
			choice.append(make('code', { textContent: shown(each) }), make('span', { textContent: percent(each) }))
			choice.style.setProperty('--width', `${Math.exp(each.logprob) * 100}%`)
			choice.ariaCurrent = String(each.token_id === entry.token_id)
			choice.disabled = !!running || isFixed || !each.bytes.length
			return choice
		}))
		card.hidden = false
		const { left, top, bottom } = token.getClientRects()[0] ?? token.getBoundingClientRect(), box = node.getBoundingClientRect()
		const fits = bottom + card.offsetHeight < innerHeight || top < card.offsetHeight + 56
		card.style.top = `${(fits ? bottom : top - card.offsetHeight) - box.top}px`
		card.style.left = `${Math.max(0, Math.min(left - box.left - 12, box.width - card.offsetWidth))}px`
	}
	const of = event => event.target.closest('.token')
	// Not pointerover: a token that comes to be under a resting pointer is not pointed at.
	reply.onpointermove = event => of(event) && show(of(event))
	reply.addEventListener('focusin', event => of(event) && show(of(event)))
	reply.onclick = event => of(event)?.focus()
	node.onpointerleave = () => node.contains(document.activeElement) || close()
	node.addEventListener('focusout', event => node.contains(event.relatedTarget) || close())
	node.onkeydown = event => {
		const here = document.activeElement, token = of(event)
		const steps = { ArrowLeft: here.previousSibling, ArrowRight: here.nextSibling, Home: reply.firstChild, End: reply.lastChild }
		const choices = [...card.querySelectorAll('button:enabled')], i = choices.indexOf(here)
		let to
		if (token) to = ['ArrowDown', 'Enter', ' '].includes(event.key) ? choices[0] : steps[event.key]
		else if (i >= 0) to = { ArrowDown: choices[i + 1] ?? here, ArrowUp: choices[i - 1] ?? open, Escape: open }[event.key]
		if (event.key === 'Escape' && token) close()
		if (!to) return
		event.preventDefault()
		to.focus()
	}
}
// The answer up to a token, another token in its place, and what the model says then.
function goOn(turn, at, candidate) {
	const entries = all(now(turn)), limit = inputs.max_tokens.value
	cut(turn)
	goOnFrom(turn, [...entries.slice(0, at), { ...candidate, top_logprobs: entries[at].top_logprobs }], limit && Math.max(1, limit - at - 1))
}
// What the model says after the first tokens of an answer.
function goOnFrom(turn, kept, limit) {
	const answer = now(turn), { messages, response_format, continue_final_message, prompt: _, ...body } = answer.request.body
	const prompt = [...answer.prompt, ...kept.map(each => each.token_id)]
	run(turn, { path: '/v1/completions', body: { ...body, prompt, max_tokens: limit || model.size - prompt.length + 1 } }, { kept, prompt: answer.prompt, view: answer.view })
}
