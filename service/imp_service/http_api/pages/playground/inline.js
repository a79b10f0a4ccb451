'use strict'
// The pieces of a paragraph: what is escaped, where a formula begins, code, an address, where a link begins and ends, emphasis.
const PIECE = /\\[\\`*_~#|<>.!+$-]|\\[([]|\$\$?|`+|<?(https?:\/\/[^\s<>`"]+)>?|!?\[|\](?:\(<?(https?:\/\/[^\s<>()]+(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?: +"[^"\n]*")?\))?|\*+|_+|~~/gi
// After an address, these belong to the sentence.
const TAIL = '.,;:!?*_~\'])'
const isLink = ({ mark }) => mark?.endsWith('[')
const makeLink = (href, ...inner) => make('a', { href, target: '_blank', rel: 'noopener noreferrer', title: href }, ...inner)

// Nodes of a paragraph as they are found: elements that are open, each in the one before, and text that has no node yet.
class Open {
	stack = [{ node: new DocumentFragment() }]
	text = ''
	get last() { return this.stack.at(-1) }
	find(isIt) { return this.stack.findLast(isIt) }
	put(...parts) {
		for (const part of parts) {
			if (typeof part === 'string') this.text += part
			else if (part.nodeType === Node.TEXT_NODE) this.text += part.data
			else this.flush().append(part)
		}
	}
	flush() {
		const { node } = this.last
		if (this.text) node.append(this.text)
		this.text = ''
		return node
	}
	begin(mark, kind) {
		if (this.stack.length > DEEPEST) return this.put(mark)
		this.flush()
		this.stack.push({ mark, node: make(kind) })
	}
	// What was never closed is text.
	unwrap() {
		this.flush()
		const { mark, node } = this.stack.pop()
		this.put(mark, ...node.childNodes)
	}
	end(mark) {
		while (this.last.mark !== mark) this.unwrap()
		this.flush()
		return this.stack.pop().node
	}
	finish() {
		while (this.stack[1]) this.unwrap()
		return this.flush()
	}
}

function inline(source) {
	const open = new Open(), lastRun = {}
	for (const { 0: run, index } of source.matchAll(/`+/g)) lastRun[run.length] = index
	PIECE.lastIndex = 0
	for (let at = 0, found; ; at = PIECE.lastIndex) {
		found = PIECE.exec(source)
		open.put(source.slice(at, found?.index))
		if (!found) return open.finish()
		const [piece, address, target] = found, { index } = found
		if (CLOSERS[piece]) PIECE.lastIndex = putFormula(open, source, index, piece)
		else if (piece[0] === '\\') open.put(piece.slice(1))
		else if (piece[0] === '`') {
			if (lastRun[piece.length] > index) PIECE.lastIndex = putCode(open, source, PIECE.lastIndex, piece)
			else open.put(piece)
		} else if (address) PIECE.lastIndex = index + putAddress(open, piece, address)
		else if (piece[0] === ']') endLink(open, piece, target)
		else if (piece.endsWith('[')) open.begin(piece, 'span')
		else if (piece === '~~') open.find(({ mark }) => mark === piece) ? open.put(open.end(piece)) : open.begin(piece, 's')
		else emphasize(open, piece, source[index - 1] ?? ' ', source[PIECE.lastIndex] ?? ' ')
	}
}
// A formula, and where it ends. One that cannot be drawn is shown as it was written.
function putFormula(open, source, at, opener) {
	const end = formulaEnd(source, at, opener), written = source.slice(at, end)
	if (!end) {
		open.put(opener)
		return at + opener.length
	}
	open.put(formula(written.slice(opener.length, -opener.length), opener === '$$' || opener === '\\[') ?? make('code', { textContent: written }))
	return end
}
// Code up to the next run of as many backticks, and where it ends.
function putCode(open, source, at, ticks) {
	let end = at
	for (const { 0: run, index } of source.slice(at).matchAll(/`+/g)) {
		end = at + index
		if (run === ticks) break
	}
	const code = source.slice(at, end), isPadded = code.startsWith(' ') && code.endsWith(' ') && code.trim()
	open.put(make('code', { textContent: isPadded ? code.slice(1, -1) : code }))
	return end + ticks.length
}
// A bare address or one in angle brackets, and how much of the piece it takes.
function putAddress(open, piece, address) {
	let { length } = address
	while (TAIL.includes(address[length - 1]) && !(address[length - 1] === ')' && address.includes('('))) length--
	const href = address.slice(0, length), bracket = piece[0] === '<' ? 1 : 0, isWrapped = bracket && piece.endsWith('>')
	const isAddress = URL.canParse(href) && !open.find(isLink)
	if (bracket && !isWrapped) open.put('<')
	open.put(isAddress ? makeLink(href, href) : href)
	return isWrapped ? piece.length : bracket + length
}
function endLink(open, piece, target) {
	const link = target && open.find(isLink)
	if (link) {
		const node = open.end(link.mark)
		if (node.querySelector('a')) open.put(link.mark, ...node.childNodes, piece)
		else open.put(makeLink(target, ...node.childNodes))
	} else {
		if (isLink(open.last)) open.unwrap()
		open.put(piece)
	}
}
// A run of stars or underscores ends what is open, and else begins something.
function emphasize(open, run, before, after) {
	const word = run[0] === '_' ? /[\p{L}\p{N}]/u : /^$/
	const begins = /\S/.test(after) && !word.test(before), ends = /\S/.test(before) && !word.test(after)
	let left = run.length
	if (left > 3) return open.put(run)
	while (ends && left) {
		const begun = open.find(({ mark }) => mark?.[0] === run[0] && mark.length <= left)
		if (!begun) break
		left -= begun.mark.length
		open.put(open.end(begun.mark))
	}
	if (!begins) return open.put(run.slice(0, left))
	if (left % 2) open.begin(run[0], 'em')
	if (left > 1) open.begin(run.slice(0, 2), 'strong')
}
