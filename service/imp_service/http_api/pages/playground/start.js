'use strict'
const isEnter = event => event.key === 'Enter' && !event.shiftKey && !event.isComposing
const text = $('text')
const fit = () => { text.style.height = 'auto'; text.style.height = `${text.scrollHeight}px` }
text.oninput = fit
text.onkeydown = event => { if (isEnter(event)) { event.preventDefault(); running || $('ask').requestSubmit() } }
$('ask').onsubmit = event => {
	event.preventDefault()
	if (running) running.abort(STOPPED)
	else if (send(text.value)) { text.value = ''; fit() }
}
document.addEventListener('keydown', event => { if (event.key === 'Escape' && !document.querySelector('dialog[open]')) running?.abort(STOPPED) })
$('fresh').onclick = () => { newChat(); text.focus() }
for (const each of document.querySelectorAll('[data-icon]')) each.prepend(icon(each.dataset.icon))
for (const idea of ['Tell me a short story.', 'Why is the sky blue?', 'Who are you?']) $('ideas').append(button(idea, () => { send(idea); text.focus() }))
$('base').textContent = `${location.origin}/v1`
$('copy').onclick = event => copy($('base').textContent, event.target)
$('take').onclick = event => copy($('call').textContent, event.target)
const night = matchMedia('(prefers-color-scheme: dark)')
function theme() {
	document.documentElement.dataset.theme = store.impTheme ?? ''
	const isDark = store.impTheme ? store.impTheme === 'dark' : night.matches
	$('theme').title = $('theme').ariaLabel = `${isDark ? 'Light' : 'Dark'} colours`
	$('theme').onclick = () => { store.impTheme = isDark ? 'light' : 'dark'; theme() }
}
night.onchange = theme
theme()
beginWithLast()
tellShelf()
connect()
text.focus()
