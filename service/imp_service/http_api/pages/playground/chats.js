'use strict'
// The list of conversations, and what is said about where they are.
const SHELF = canStore
	? { false: 'They stay in this tab, also through a reload, and are gone once you close it.', true: 'They stay in this browser until you delete them. Whoever uses this browser can read them.' }
	: { false: 'This browser lets this page store nothing, so a reload starts over.' }
function tellShelf() {
	$('keep').checked = keeps()
	$('keep').disabled = !browser
	$('where').textContent = `${SHELF[keeps()]} Messages, answers and parameters are stored; never the key, and no scores of tokens.`
	$('kept').textContent = `It runs on this server. ${SHELF[keeps()].replace('They', 'Conversations')}`
}
const when = at => {
	const date = new Date(at), isToday = date.toDateString() === new Date().toDateString()
	return isToday ? date.toLocaleTimeString([], { timeStyle: 'short' }) : date.toLocaleDateString([], { dateStyle: 'medium' })
}
function listChats() {
	const chats = storedChats()
	tellShelf()
	$('none').hidden = chats.length > 0
	$('clear').replaceWith(twice(make('button', { type: 'button', id: 'clear', textContent: 'Delete all', hidden: !chats.length }), `Really delete ${sum(chats.length, 'conversation')}?`, () => {
		newChat()
		for (const { id } of chats) forget(id)
		listChats()
		$('keep').focus()
	}))
	$('chatlist').replaceChildren(...chats.map(({ id, title, at }) => {
		const pick = make('button', { type: 'button', onclick: () => { $('chats').close(); if (id !== chat.id) openChat(id); text.focus() } }, make('span', { textContent: title }), make('small', { textContent: when(at) }))
		pick.ariaCurrent = String(id === chat.id)
		const remove = twice(iconButton(`Delete “${title}”`, 'remove'), 'Delete?', () => {
			if (id === chat.id) newChat()
			forget(id)
			listChats()
			$('shutchats').focus()
		})
		return make('li', {}, pick, remove)
	}))
}
$('keep').onchange = () => { keep($('keep').checked); listChats() }
$('list').onclick = () => { listChats(); $('chats').showModal() }
