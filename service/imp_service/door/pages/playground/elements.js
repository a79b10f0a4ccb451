'use strict'
const $ = id => document.getElementById(id)
const make = (kind, props, ...inner) => {
	const made = Object.assign(document.createElement(kind), props)
	made.append(...inner)
	return made
}
const button = (text, onclick) => make('button', { type: 'button', textContent: text, onclick })
const sleep = ms => new Promise(done => setTimeout(done, ms))
const sum = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`
// For this tab alone; a browser may forbid even that.
let store = {}
try { store = sessionStorage } catch {}
