'use strict'
// Conversations outlive a reload: in this tab, or in this browser once its user turns that on. The key and the scores of
// tokens are never stored with them. Each has an entry of its own, so that tabs do not write over each other's.
const CHAT = 'impChat:', FORM = 1
// What an answer keeps besides its request and its problem.
const KEPT = ['text', 'before', 'thought', 'view', 'n', 'end', 'note', 'reason', 'usage', 'cells', 'first', 'last', 'began']
let browser
try { browser = localStorage } catch {}
const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2)
let chat = { id: newId() }
const canStore = store instanceof Storage
const keeps = () => browser?.impKeep === 'yes'
const shelves = () => [browser, store].filter(Boolean)

function put(shelf, name, value) {
	try { shelf[name] = value } catch { return false }
	return true
}
// A stored conversation; nothing if there is none, or if another version of this page wrote it.
function stored(id) {
	for (const shelf of shelves()) {
		try {
			const record = JSON.parse(shelf[CHAT + id] ?? null)
			if (record?.form === FORM && record.turns.length) return record
		} catch {}
	}
}
// The stored conversations, the newest first.
function storedChats() {
	const names = new Set(shelves().flatMap(shelf => Object.keys(shelf)).filter(name => name.startsWith(CHAT)))
	const found = [...names].map(name => ({ ...stored(name.slice(CHAT.length)), id: name.slice(CHAT.length) }))
	return found.filter(({ form }) => form).sort((one, other) => other.at - one.at)
}
function forget(id) {
	for (const shelf of shelves()) delete shelf[CHAT + id]
}

// Stores the conversation as it is now.
function save() {
	put(store, 'impParameters', JSON.stringify(parameters()))
	if (!turns.length) return forget(chat.id)
	// If another tab has changed it since this one read it, this one continues as a copy.
	const other = stored(chat.id)
	if (other && other.stamp !== chat.stamp) chat.id = newId()
	const shelf = keeps() ? browser : store, stamp = newId()
	const isStored = put(shelf, CHAT + chat.id, JSON.stringify(recordOf(stamp)))
	if (isStored) {
		chat.stamp = stamp
		for (const each of shelves()) if (each !== shelf) delete each[CHAT + chat.id]
	}
	put(store, 'impOpen', chat.id)
	$('unkept').hidden = isStored
}
function recordOf(stamp) {
	const said = [], places = new Map()
	// A conversation has each message once, though every request repeats those before it.
	const place = message => {
		const text = JSON.stringify(message)
		if (!places.has(text)) places.set(text, said.push(message) - 1)
		return places.get(text)
	}
	const answerOf = answer => {
		const { path, body } = answer.request
		const request = { path, body: { ...body, ...body.messages && { messages: body.messages.map(place) } } }
		const end = isOver(answer) ? answer.end : LEFT
		return { ...Object.fromEntries(KEPT.map(name => [name, answer[name]])), end, request, problem: answer.problem?.message }
	}
	const kept = turns.map(turn => ({ text: turn.text, at: turn.at, answers: turn.answers.map(answerOf) }))
	return { form: FORM, stamp, at: Date.now(), title: turns[0].text.trim().slice(0, 80), parameters: parameters(), said, turns: kept }
}
function restoredTurn(said, { text, at, answers }) {
	const answerOf = ({ request: { path, body }, problem, view, ...rest }) => ({
		...rest, kept: [], entries: [], prompt: [], isWhole: false, view: view === 'tokens' ? 'formatted' : view,
		problem: problem && Error(problem), request: { path, body: { ...body, ...body.messages && { messages: body.messages.map(i => said[i]) } } },
	})
	return { text, at, answers: answers.map(answerOf), node: turnNode() }
}

// Shows a stored conversation.
function openChat(id) {
	const record = stored(id)
	if (!record) return false
	leave()
	chat = { id, stamp: record.stamp }
	turns = record.turns.map(turn => restoredTurn(record.said, turn))
	setParameters(record.parameters)
	put(store, 'impOpen', id)
	$('talk').replaceChildren(...turns.map(turn => turn.node))
	$('hello').hidden = true
	for (const turn of turns) draw(turn)
	scrollTo(0, document.documentElement.scrollHeight)
	return true
}
// Before another conversation is shown, and before the page goes.
function leave() {
	if (running) save()
	running?.abort(LEFT)
}
function newChat() {
	leave()
	chat = { id: newId() }
	turns = []
	delete store.impOpen
	$('talk').replaceChildren()
	$('hello').hidden = false
	$('unkept').hidden = true
}
// Moves all conversations to the browser, or from there into this tab.
function keep(isOn) {
	if (isOn) put(browser, 'impKeep', 'yes')
	else delete browser.impKeep
	const [from, to] = isOn ? [store, browser] : [browser, store]
	let isStored = true
	for (const { id } of storedChats()) {
		if (!(CHAT + id in from)) continue
		isStored = put(to, CHAT + id, from[CHAT + id]) && isStored
		if (!isOn || CHAT + id in to) delete from[CHAT + id]
	}
	$('unkept').hidden = isStored
}
function beginWithLast() {
	if (store.impOpen && openChat(store.impOpen)) return
	try { setParameters(JSON.parse(store.impParameters ?? '{}')) } catch {}
}
addEventListener('pagehide', leave)
