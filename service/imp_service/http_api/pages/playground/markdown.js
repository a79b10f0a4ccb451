'use strict'
// Markdown as DOM nodes. What is no Markdown of these kinds stays text, HTML too; nothing is ever parsed as HTML.
const DEEPEST = 16
const FENCE = /^( {0,3})(`{3,}|~{3,}(?!~))([^`]*)$/
const HEADING = /^ {0,3}(#{1,6})(?: +|$)/
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/
const QUOTE = /^ {0,3}> ?/
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +/
// In the middle of a paragraph, “1986. That was” is no item.
const FIRST_ITEM = /^ *([-*+]|1[.)]) +/
const COLUMNS = /^\|? *:?-+:? *(\| *:?-+:? *)*\|?$/
const FORMULA = /^ *(\$\$|\\\[)/
// A formula on lines of its own has at most so many.
const MOST_LINES = 60
// The mark that an item of a task list begins with.
const TASK = /^\[([ xX])\] +/
const isBlank = line => !line.trim()
const indentOf = line => line.length - line.trimStart().length
const isColumns = (line, before) => line?.includes('|') && before.includes('|') && COLUMNS.test(line.trim())
const begins = line => isBlank(line) || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || FIRST_ITEM.test(line)

// The blocks of a text: their kind, and their lines as they were written.
function blocksOf(lines) {
	const blocks = []
	for (let at = 0; at < lines.length;) {
		if (isBlank(lines[at])) { at++; continue }
		const kind = kindOf(lines, at), end = END[kind](lines, at)
		blocks.push({ kind, lines: lines.slice(at, end) })
		at = end
	}
	return blocks
}
function kindOf(lines, at) {
	const line = lines[at], next = lines[at + 1]
	if (FENCE.test(line)) return 'code'
	if (HEADING.test(line)) return 'heading'
	if (RULE.test(line)) return 'rule'
	if (QUOTE.test(line)) return 'quote'
	if (ITEM.test(line)) return 'list'
	if (formulaLines(lines, at)) return 'formula'
	return isColumns(next, line) ? 'table' : 'paragraph'
}
// How many lines a formula takes that has them for itself.
function formulaLines(lines, at) {
	const [start, opener] = FORMULA.exec(lines[at]) ?? []
	for (let i = at; opener && i < lines.length && i < at + MOST_LINES; i++) {
		const from = i === at ? start.length : 0, end = lines[i].indexOf(CLOSERS[opener], from)
		if (end >= 0) return /^..[.,;:]? *$/.test(lines[i].slice(end)) ? i + 1 - at : 0
	}
	return 0
}
const closes = (fence, line) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], '')
const seek = (lines, at, isEnd) => {
	while (at < lines.length && !isEnd(lines[at], lines[at + 1], at)) at++
	return at
}
// Where a block that begins at a line ends.
const END = {
	heading: (_, at) => at + 1,
	rule: (_, at) => at + 1,
	formula: (lines, at) => at + formulaLines(lines, at),
	code(lines, at) {
		const [, , fence] = FENCE.exec(lines[at])
		return Math.min(seek(lines, at + 1, line => closes(fence, line)) + 1, lines.length)
	},
	quote: (lines, at) => seek(lines, at, line => !QUOTE.test(line)),
	table: (lines, at) => seek(lines, at + 2, begins),
	paragraph: (lines, at) => seek(lines, at + 1, (line, next, i) => begins(line) || isColumns(next, line) || formulaLines(lines, i)),
	// Items of one kind, and what is indented under them.
	list(lines, at) {
		const [, { length: indent }, mark] = ITEM.exec(lines[at])
		let wasBlank = false
		return seek(lines, at + 1, line => {
			const blank = isBlank(line), after = wasBlank
			wasBlank = blank
			if (blank || indentOf(line) > indent) return false
			const item = !RULE.test(line) && ITEM.exec(line)
			return item ? item[2].at(-1) !== mark.at(-1) : after || begins(line)
		})
	},
}

// Returns the lines between the fences. The closing fence may be missing.
function sourceOf([start, ...lines]) {
	const [, { length: indent }, fence] = FENCE.exec(start)
	if (lines.length && closes(fence, lines.at(-1))) lines.pop()
	return lines.map(line => line.slice(Math.min(indent, indentOf(line)))).join('\n')
}

const languageOf = ([start]) => FENCE.exec(start)[3].trim().split(' ')[0]

// Blocks as nodes.
const drawn = {
	heading({ lines: [line] }) {
		const [start, { length: level }] = HEADING.exec(line)
		const heading = make('h2', {}, inline(line.slice(start.length).replace(/(?<! ) +#+ *$/, '')))
		heading.dataset.level = level
		return heading
	},
	rule: () => make('hr'),
	formula({ lines }) {
		const written = lines.join('\n').trim(), end = written.lastIndexOf(CLOSERS[written.slice(0, 2)])
		const node = formula(written.slice(2, end) + written.slice(end + 2), true)
		return node ? make('div', { className: 'wide', tabIndex: 0 }, node) : make('p', {}, make('code', { textContent: written }))
	},
	code({ lines }) {
		const language = languageOf(lines)
		const code = make('code')
		colour(code, sourceOf(lines), language)
		const head = make('div', { className: 'row' }, make('small', { textContent: language }), button('Copy', event => copy(code.textContent, event.target)))
		head.lastChild.ariaLabel = 'Copy this code'
		return make('div', { className: 'source' }, head, make('pre', { tabIndex: 0 }, code))
	},
	quote: ({ lines }, depth) => make('blockquote', {}, ...nodesOf(lines.map(line => line.replace(QUOTE, '')), depth + 1)),
	list({ lines }, depth) {
		const [, { length: indent }, mark] = ITEM.exec(lines[0]), items = []
		for (const line of lines) {
			const item = ITEM.exec(line)
			if (item && item[1].length <= indent) items.push([line.slice(item[0].length)])
			else items.at(-1).push(line)
		}
		const list = make(mark.length > 1 ? 'ol' : 'ul')
		if (mark.length > 1) list.start = parseInt(mark)
		for (const [start, ...under] of items) {
			const margin = Math.min(...under.filter(line => !isBlank(line)).map(indentOf), 80)
			const [box, done] = TASK.exec(start) ?? ['']
			const nodes = nodesOf([start.slice(box.length), ...under.map(line => line.slice(margin))], depth + 1)
			if (!box) list.append(make('li', {}, ...nodes))
			else list.append(make('li', { className: 'task' }, make('input', { type: 'checkbox', disabled: true, checked: done !== ' ', ariaLabel: done === ' ' ? 'To do' : 'Done' }), make('div', {}, ...nodes)))
		}
		return list
	},
	table({ lines: [head, columns, ...rows] }) {
		const sides = cells(columns).map(each => /^:-+:$/.test(each) ? 'center' : each.endsWith(':') ? 'right' : '')
		const row = (line, kind) => {
			const found = cells(line)
			return make('tr', {}, ...sides.map((side, i) => {
				const cell = make(kind, {}, inline(found[i] ?? ''))
				cell.style.textAlign = side
				return cell
			}))
		}
		const table = make('table', {}, make('thead', {}, row(head, 'th')), make('tbody', {}, ...rows.map(each => row(each, 'td'))))
		return make('div', { className: 'wide', tabIndex: 0 }, table)
	},
	paragraph: ({ lines }) => make('p', {}, inline(lines.map(line => line.trimEnd()).join('\n'))),
}
const cells = line => line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '').split(/(?<!\\)\|/).map(each => each.trim().replaceAll('\\|', '|'))
const nodesOf = (lines, depth) => depth > DEEPEST ? [make('p', { textContent: lines.join('\n') })] : blocksOf(lines).map(each => drawn[each.kind](each, depth))

// Draws a text that grows: only its last blocks change.
function drawMarkdown(into, text) {
	const blocks = blocksOf(text.replaceAll('\r\n', '\n').replaceAll('\t', '    ').split('\n')), old = into.blocks ?? []
	const isSame = (one, other) => one.kind === other?.kind && one.lines.length === other.lines.length && one.lines.every((line, i) => line === other.lines[i])
	let same = 0
	while (same < blocks.length && isSame(blocks[same], old[same])) same++
	// A reader may have scrolled code aside, so its block stays.
	const [was, is] = [old[same], blocks[same]]
	if (is?.kind === 'code' && was?.kind === 'code' && is.lines[0] === was.lines[0]) colour(into.children[same++].querySelector('code'), sourceOf(is.lines), languageOf(is.lines))
	while (into.children.length > same) into.lastChild.remove()
	for (const block of blocks.slice(same)) into.append(drawn[block.kind](block, 0))
	into.blocks = blocks
}
