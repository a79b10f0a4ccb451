'use strict'
// What a turn looks like.
function draw(turn) {
	const answer = now(turn), busy = !isOver(answer), held = turn.node.contains(document.activeElement) && document.activeElement.ariaLabel
	const asked = make('div', { className: 'asked' }, ...shownPictures(turn, answer), make('p', { textContent: turn.text }), questionActions(turn))
	const reply = turn.reply = make('div', { className: 'reply', ariaLive: 'polite', ariaBusy: String(busy) })
	const thought = turn.thought = make('p')
	const details = turn.details = make('details', { open: busy }, make('summary', { textContent: 'Reasoning' }), thought)
	const node = make('div', { className: 'answer' }, details, reply)
	if (answer.problem) node.append(make('p', { className: 'problem', role: 'alert', textContent: answer.problem.message }))
	if (!busy && !answer.text) node.append(make('p', { className: 'soft', textContent: 'Later messages are sent without this one.' }))
	if (answer.note) node.append(make('p', { className: 'soft note', role: 'status', textContent: answer.note }))
	turn.figures = make('span', { className: 'soft figures' })
	node.append(make('div', { className: 'row' }, ...busy ? [] : actions(turn, answer), turn.figures))
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
	if (held) [...turn.node.querySelectorAll('button')].find(each => each.ariaLabel === held)?.focus()
}
function shownPictures(turn, answer) {
	const urls = picturesOf(turn), tokens = answer.cells > 0 ? ` · ${sum(answer.cells, 'token')}` : ''
	return urls.length ? [make('div', { className: 'row pictures' }, ...small(urls), make('small', { textContent: sum(urls.length, 'picture') + tokens }))] : []
}
function update(turn) {
	draw(turn)
	save()
}
// Whether the reader is at its end, and so wants to see what comes.
const isInView = ({ node }) => node.getBoundingClientRect().bottom < innerHeight
const reveal = turn => turn.node.scrollIntoView({ block: turn === turns.at(-1) ? 'end' : 'nearest' })
function grow(turn) {
	const answer = now(turn), { reply } = turn, [line, more] = figures(answer)
	const follows = isInView(turn)
	turn.details.hidden = !answer.thought
	turn.thought.textContent = answer.thought
	turn.figures.replaceChildren(more ? make('details', {}, make('summary', { textContent: line }), make('span', { textContent: more })) : line)
	if (answer.view === 'tokens') addTokens(reply, answer)
	else if (answer.view === 'formatted') drawMarkdown(reply, answer.text)
	else (reply.firstChild ?? reply.appendChild(new Text())).appendData(answer.text.slice(reply.firstChild?.length))
	if (follows) reveal(turn)
}
// Removes the turns after a turn.
function cut(turn) {
	for (const later of turns.splice(turns.indexOf(turn) + 1)) later.node.remove()
}
