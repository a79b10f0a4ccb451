'use strict'
// What a turn looks like.
function draw(turn) {
	const answer = now(turn), busy = !answer.end && !answer.problem
	const asked = make('div', { className: 'asked' }, make('p', { textContent: turn.text }), make('div', { className: 'row' }, button('Edit', () => edit(turn))))
	const reply = turn.reply = make('div', { className: 'reply', ariaLive: 'polite', ariaBusy: String(busy) })
	const thought = turn.thought = make('p')
	const details = turn.details = make('details', { open: busy }, make('summary', { textContent: 'Reasoning' }), thought)
	turn.figures = make('p', { className: 'soft' })
	const node = make('div', { className: 'answer' }, details, reply)
	if (answer.problem) node.append(make('p', { className: 'problem', role: 'alert', textContent: answer.problem.message }))
	node.append(turn.figures)
	if (answer.note) node.append(make('p', { className: 'soft note', role: 'status', textContent: answer.note }))
	if (!busy) node.append(actions(turn, answer))
	turn.node.replaceChildren(asked, node)
	reply.classList.add(answer.view)
	if (answer.view === 'tokens') {
		reply.role = 'group'
		reply.ariaLabel = 'Tokens of the answer'
		watch(turn)
	}
	grow(turn)
	const input = inputs[answer.problem?.param]
	if (input) input.setCustomValidity(answer.problem.message)
}
// Whether the reader is at its end, and so wants to see what comes.
const isInView = ({ node }) => node.getBoundingClientRect().bottom < innerHeight
const reveal = turn => turn.node.scrollIntoView({ block: turn === turns.at(-1) ? 'end' : 'nearest' })
function grow(turn) {
	const answer = now(turn), { reply } = turn
	const follows = isInView(turn)
	turn.details.hidden = !answer.thought
	turn.thought.textContent = answer.thought
	turn.figures.textContent = figures(answer)
	if (answer.view === 'tokens') addTokens(reply, answer)
	else if (answer.view === 'formatted') drawMarkdown(reply, answer.text)
	else (reply.firstChild ?? reply.appendChild(new Text())).appendData(answer.text.slice(reply.firstChild?.length))
	if (follows) reveal(turn)
}
function actions(turn, answer) {
	const row = make('div', { className: 'row' })
	const views = [['Tokens', 'tokens'], ['Plain text', 'plain']].map(([name, view]) => {
		const choice = button(name, () => {
			answer.view = answer.view === view ? 'formatted' : view
			if (answer.view !== 'tokens') preferred = answer.view
			draw(turn)
			turn.node.querySelector(`[data-view=${view}]`).focus()
		})
		choice.dataset.view = view
		choice.ariaPressed = String(answer.view === view)
		return choice
	})
	if (answer.n) row.append(button('Copy', event => copy(answer.text, event.target)), ...views, button('Same again', () => again(turn)))
	row.append(button(answer.problem ? 'Try again' : 'Another answer', () => {
		if (running) return
		cut(turn)
		run(turn, { ...answer.request, body: { ...answer.request.body, seed: anySeed() } }, answer)
	}), button('As code', () => showCode(answer.request)))
	if (turn.answers[1]) {
		const step = by => () => { turn.at = (turn.at + by + turn.answers.length) % turn.answers.length; draw(turn) }
		const [back, next] = [button('‹', step(-1)), button('›', step(1))]
		back.ariaLabel = 'Previous answer'
		next.ariaLabel = 'Next answer'
		row.append(back, make('span', { className: 'soft', textContent: `${turn.at + 1} of ${turn.answers.length}` }), next)
	}
	return row
}
async function again(turn) {
	if (running) return
	const old = now(turn)
	const made = await run(turn, old.request, old)
	const ids = [old, made].map(each => each.entries.map(entry => entry.token_id))
	const n = Math.min(ids[0].length, ids[1].length)
	const other = ids[0].findIndex((id, i) => i < n && id !== ids[1][i])
	if (made.problem || !n) return
	if (other >= 0) made.note = `It differs from token ${other + 1} on. Was another model loaded?`
	else {
		made.note = ids[0].length === ids[1].length ? `The same answer again: all ${sum(n, 'token')} are equal.` : `The same answer as far as both go: ${sum(n, 'token')}.`
		turn.answers.splice(turn.answers.indexOf(old), 1)
		turn.at = turn.answers.indexOf(made)
	}
	draw(turn)
}
// Removes the turns after a turn.
function cut(turn) {
	for (const later of turns.splice(turns.indexOf(turn) + 1)) later.node.remove()
}
function edit(turn) {
	if (running) return
	const text = make('textarea', { value: turn.text, rows: 3, ariaLabel: 'Message' })
	const leave = () => draw(turn)
	const resend = () => {
		if (!chosen() || !text.value.trim()) return
		cut(turn)
		turns.pop()
		turn.node.remove()
		send(text.value)
		$('text').focus()
	}
	text.onkeydown = event => {
		if (event.key === 'Escape') leave()
		if (isEnter(event)) resend()
	}
	turn.node.querySelector('.asked').replaceChildren(text, make('div', { className: 'row' }, button('Send', resend), button('Cancel', leave)))
	text.focus()
}
