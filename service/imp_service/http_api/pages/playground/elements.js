'use strict'
const $ = id => document.getElementById(id)
const make = (kind, props, ...inner) => {
	const made = Object.assign(document.createElement(kind), props)
	made.append(...inner)
	return made
}
const button = (text, onclick) => make('button', { type: 'button', textContent: text, onclick })
// Icons: strokes in a square of 24.
const ICONS = {
	list: 'M4 6h16M4 12h16M4 18h16', add: 'M12 5v14M5 12h14', sliders: 'M4 7h8m4 0h4M4 17h2m4 0h10M14 4v6M8 14v6', close: 'M6 6l12 12M18 6L6 18',
	copy: 'M9 9h11v11H9zM6 15H4V4h11v2', done: 'M5 12l5 5L20 7', tokens: 'M3 8h6v8H3zM11 8h4v8h-4zM17 8h4v8h-4z', plain: 'M5 8V5h14v3M12 5v14M9 19h6',
	same: 'M17 3l3 3-3 3M4 12V9a3 3 0 0 1 3-3h13M7 21l-3-3 3-3M20 12v3a3 3 0 0 1-3 3H4', other: 'M20 12a8 8 0 1 1-2.3-5.7M20 3v5h-5',
	code: 'M8 7l-5 5 5 5M16 7l5 5-5 5', edit: 'M4 20h4L19 9l-4-4L4 16z', remove: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
	picture: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01',
	on: 'M6 5l9 7-9 7zM19 5v14', back: 'M14 6l-6 6 6 6', next: 'M10 6l6 6-6 6', down: 'M12 5v14M6 13l6 6 6-6',
}
const SVG = 'http://www.w3.org/2000/svg'
function icon(name) {
	const [picture, line] = ['svg', 'path'].map(kind => document.createElementNS(SVG, kind))
	picture.setAttribute('viewBox', '0 0 24 24')
	picture.ariaHidden = 'true'
	line.setAttribute('d', ICONS[name])
	picture.append(line)
	return picture
}
// A button that shows an icon, and whose name is also its tooltip.
const iconButton = (name, picture, onclick) => make('button', { type: 'button', className: 'icon', title: name, ariaLabel: name, onclick }, icon(picture))
// What cannot be undone takes two presses.
function twice(made, question, act) {
	const { ariaLabel, title } = made, inner = [...made.childNodes]
	const calm = () => { made.replaceChildren(...inner); Object.assign(made, { ariaLabel, title }); made.classList.remove('sure') }
	made.onclick = () => {
		if (made.classList.contains('sure')) return act()
		made.replaceChildren(question)
		Object.assign(made, { ariaLabel: question, title: question })
		made.classList.add('sure')
	}
	made.onblur = calm
	return made
}
const sleep = ms => new Promise(done => setTimeout(done, ms))
const sum = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`
// For this tab alone; a browser may forbid even that.
let store = {}
try { store = sessionStorage ?? store } catch {}
