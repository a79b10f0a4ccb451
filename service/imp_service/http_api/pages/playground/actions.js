'use strict'
// What can be done with a turn.
const EDITED = 'you edited it'
function questionActions(turn) {
	const remove = twice(iconButton('Delete', 'remove'), 'Delete this turn?', () => {
		if (running) return
		turns.splice(turns.indexOf(turn), 1)
		turn.node.remove()
		$('hello').hidden = turns.length > 0
		save()
		$('text').focus()
	})
	return make('div', { className: 'row' }, iconButton('Edit', 'edit', () => running || editQuestion(turn)), remove)
}
function actions(turn, answer) {
	const made = [], add = (name, picture, act) => made.push(iconButton(name, picture, act))
	if (canContinue(answer)) {
		add('Continue', 'on', () => running || goOnFromEnd(turn))
		made[0].append('Continue')
	}
	if (answer.problem) made.push(button('Try again', () => another(turn, answer)))
	if (answer.text) add('Copy', 'copy', event => copy(answer.text, event.currentTarget))
	if (answer.text) made.push(...views(turn, answer))
	if (answer.n) add('Same again', 'same', () => again(turn))
	if (!answer.problem) add('Another answer', 'other', () => another(turn, answer))
	if (answer.end !== EDITED) add('As code', 'code', () => showCode(answer.request))
	if (answer.text) add('Edit answer', 'edit', () => running || editAnswer(turn))
	if (turn.answers[1]) {
		const step = by => () => { turn.at = (turn.at + by + turn.answers.length) % turn.answers.length; update(turn) }
		add('Previous answer', 'back', step(-1))
		made.push(make('span', { className: 'soft', textContent: `${turn.at + 1} of ${turn.answers.length}` }))
		add('Next answer', 'next', step(1))
	}
	return made
}
function views(turn, answer) {
	return [['Tokens', 'tokens'], ['Plain text', 'plain']].map(([name, view]) => {
		const choice = iconButton(name, view, () => {
			answer.view = answer.view === view ? 'formatted' : view
			if (answer.view !== 'tokens') preferred = answer.view
			update(turn)
		})
		choice.ariaPressed = String(answer.view === view)
		if (view === 'tokens' && !(answer.isWhole && answer.n)) {
			choice.disabled = true
			choice.title = 'Tokens: their scores are not kept'
		}
		return choice
	})
}
function another(turn, { request, kept, before, prompt, view }) {
	if (running) return
	cut(turn)
	run(turn, { ...request, body: { ...request.body, seed: anySeed() } }, { kept, before, prompt, view })
}
async function again(turn) {
	if (running) return
	const old = now(turn)
	const made = await run(turn, old.request, old)
	if (made.problem || !made.n || !turns.includes(turn)) return
	const parts = [old, made].map(each => old.isWhole ? each.entries.map(entry => entry.token_id) : [...each.text])
	const n = Math.min(...parts.map(each => each.length)), kind = old.isWhole ? 'token' : 'character'
	const other = parts[0].findIndex((part, i) => i < n && part !== parts[1][i])
	if (other >= 0) made.note = `It differs from ${kind} ${other + 1} on. Was another model loaded?`
	else {
		made.note = parts[0].length === parts[1].length ? `The same answer again: all ${sum(n, kind)} are equal.` : `The same answer as far as both go: ${sum(n, kind)}.`
		turn.answers.splice(turn.answers.indexOf(old), 1)
		turn.at = turn.answers.indexOf(made)
	}
	update(turn)
}

// Whether there may be more: something cut it off before its end, other than the context, and no schema must fit the whole.
function canContinue({ text, problem, end, reason, usage, request: { body } }) {
	const isFull = usage?.total_tokens >= model.size
	return !!text && !body.response_format && !isFull && (!!problem || end === EDITED || reason !== 'stop')
}
// Later turns stay: they follow from what was there.
function goOnFromEnd(turn) {
	const answer = now(turn), limit = Number(inputs.max_tokens.value)
	if (answer.isWhole && answer.n && !answer.thought && !hasPictures(answer)) return goOnFrom(turn, all(answer), limit)
	const { prompt: _, max_tokens, ...body } = answer.request.body
	const messages = [...messagesTo(turn.text, picturesOf(turn), turns.slice(0, turns.indexOf(turn))), { role: 'assistant', content: answer.text }]
	run(turn, { path: '/v1/chat/completions', body: { ...body, ...limit && { max_tokens: limit }, messages, continue_final_message: true } }, { before: answer.text, view: answer.view })
}

// Puts a text area in the place of a node.
function editIn(turn, place, value, name, act, label) {
	const area = make('textarea', { value, rows: Math.min(12, value.split('\n').length + 2), ariaLabel: name })
	const leave = () => { draw(turn); turn.node.querySelector(`[aria-label="${label}"]`).focus() }
	const done = () => area.value.trim() && act(area.value)
	area.onkeydown = event => {
		if (event.key === 'Escape') { event.stopPropagation(); leave() }
		if (label === 'Edit' && isEnter(event)) { event.preventDefault(); done() }
	}
	place.replaceChildren(area, make('div', { className: 'row' }, button(label === 'Edit' ? 'Send' : 'Save', done), button('Cancel', leave)))
	area.focus()
}
function editQuestion(turn) {
	editIn(turn, turn.node.querySelector('.asked'), turn.text, 'Message', text => {
		if (!chosen()) return
		const urls = picturesOf(turn)
		cut(turn)
		turns.pop()
		turn.node.remove()
		send(text, urls)
		$('text').focus()
	}, 'Edit')
}
function editAnswer(turn) {
	const { text, request, view } = now(turn)
	editIn(turn, turn.node.querySelector('.answer'), text, 'Answer', edited => {
		const answer = { request, text: edited, before: '', kept: [], entries: [], prompt: [], isWhole: false, thought: '', n: 0, end: EDITED, note: '', view: view === 'tokens' ? 'formatted' : view }
		turn.at = turn.answers.push(answer) - 1
		update(turn)
		turn.node.querySelector('[aria-label="Edit answer"]').focus()
	}, 'Edit answer')
}
