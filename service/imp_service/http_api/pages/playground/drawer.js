'use strict'
// Where the window is narrow, the parameters are in a drawer over the conversation.
const wide = matchMedia('(min-width: 70.01rem)')
function showParameters() {
	if (wide.matches || $('drawer').open) return
	$('drawer').append($('knobs'))
	$('drawer').showModal()
}
$('tune').onclick = showParameters
$('drawer').onclose = () => document.querySelector('aside').append($('knobs'))
wide.onchange = () => $('drawer').close()
for (const dialog of document.querySelectorAll('dialog')) {
	dialog.querySelector('.shut').onclick = () => dialog.close()
	const isOutside = ({ target, clientX: x, clientY: y }) => {
		const { left, right, top, bottom } = dialog.getBoundingClientRect()
		return target === dialog && (x < left || x > right || y < top || y > bottom)
	}
	// A press that begins and ends outside. One that selects text may leave the dialog.
	let began
	dialog.onpointerdown = event => { began = isOutside(event) }
	dialog.addEventListener('click', event => began && isOutside(event) && dialog.close())
}
// A way back to the end for a reader who scrolled up.
const isAway = () => turns.length && document.documentElement.scrollHeight - innerHeight - scrollY > 160
const offerEnd = () => { $('down').hidden = !isAway() }
addEventListener('scroll', offerEnd, { passive: true })
new ResizeObserver(offerEnd).observe($('talk'))
$('down').onclick = () => {
	scrollTo({ top: document.documentElement.scrollHeight })
	$('text').focus()
}
