'use strict'
// Colours of code: comments, strings, numbers and the words of a language. Of an unknown one, all but the words.
const C_LIKE = 'break case catch class const continue default do else enum extern false finally for goto if new null return static struct switch this throw true try typeof void volatile while'
const WORDS_OF = {
	c: `${C_LIKE} auto bool char constexpr delete double explicit float friend inline int long mutable namespace noexcept nullptr operator override private protected public register short signed size_t sizeof static_cast template typedef typename union unsigned using virtual concept requires`,
	js: `${C_LIKE} abstract as async await boolean debugger declare delete export extends from function get implements import in instanceof interface keyof let never number of private protected public readonly set string super type undefined unknown var with yield`,
	java: `${C_LIKE} abstract assert boolean byte char double extends fun final float implements import instanceof int interface let long object override package private protected public record sealed short string super synchronized throws val var when yield foreach in namespace using async await`,
	go: `${C_LIKE} any bool chan defer error fallthrough func go import int interface map nil package range rune select string type var uint byte float64 int64`,
	rust: `${C_LIKE} as async await bool crate dyn f32 f64 fn i32 i64 impl in let loop match mod move mut pub ref self Self str String trait type u8 u32 u64 unsafe use usize where Some None Ok Err`,
	py: 'and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield print end begin do module require then unless until nil puts elsif function local',
	sh: 'case cd do done echo elif else esac exit export fi for function if in local read return set shift source sudo then unset until while test apt pip npm git docker curl',
	sql: 'add all alter and as asc avg begin between by case check commit count create cross default delete desc distinct drop else end exists false foreign from full group having if in index inner insert int integer into is join key left like limit max min not null offset on or order outer primary references returning right select set sum table text then true union unique update values varchar view when where with',
	json: 'true false null', html: '', css: 'important',
}
const SLASHES = '\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)', HASH = '(?<![^\\s;(])#[^\\n]*', DASHES = '--[^\\n]*'
const QUOTED = '"(?:\\\\.|[^"\\\\\\n])*"?', SINGLE = "'(?:\\\\.|[^'\\\\\\n])*'?", TICKS = '`(?:\\\\.|[^`\\\\])*`?'
const TRIPLE = '"""[^]*?(?:"""|$)|\'\'\'[^]*?(?:\'\'\'|$)', CHARACTER = "'(?:\\\\[^'\\n]+|[^'\\\\\\n])'"
// Comments and strings of each language.
const SHAPES = {
	c: [SLASHES, `${QUOTED}|${CHARACTER}`], js: [SLASHES, `${QUOTED}|${SINGLE}|${TICKS}`], java: [SLASHES, `${TRIPLE}|${QUOTED}|${SINGLE}`],
	go: [SLASHES, `${QUOTED}|${TICKS}|${CHARACTER}`], rust: [SLASHES, `${QUOTED}|${CHARACTER}`], py: [HASH, `${TRIPLE}|${QUOTED}|${SINGLE}`],
	sh: [HASH, `"(?:\\\\.|[^"\\\\])*"?|'[^']*'?`], sql: [`${DASHES}|\\/\\*[^]*?(?:\\*\\/|$)`, SINGLE], json: [SLASHES, QUOTED],
	html: ['<!--[^]*?(?:-->|$)', `(?<==)(?:${QUOTED}|${SINGLE})`], css: ['\\/\\*[^]*?(?:\\*\\/|$)', `${QUOTED}|${SINGLE}`],
	'': ['(?<!\\S)(?:\\/\\/|#(?= )|--(?= ))[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)', `"(?:\\\\.|[^"\\\\\\n])*"|(?<!\\w)'(?:\\\\.|[^'\\\\\\n])*'`],
}
const SAME_AS = {
	cpp: 'c', 'c++': 'c', h: 'c', hpp: 'c', cc: 'c', cuda: 'c', javascript: 'js', ts: 'js', typescript: 'js', jsx: 'js', tsx: 'js', node: 'js', mjs: 'js',
	kotlin: 'java', swift: 'java', csharp: 'java', 'c#': 'java', cs: 'java', scala: 'java', dart: 'java', php: 'java', golang: 'go', rs: 'rust',
	python: 'py', python3: 'py', ruby: 'py', rb: 'py', lua: 'py', toml: 'py', yaml: 'py', yml: 'py', r: 'py', julia: 'py', elixir: 'py',
	bash: 'sh', shell: 'sh', zsh: 'sh', console: 'sh', dockerfile: 'sh', makefile: 'sh', postgresql: 'sql', mysql: 'sql', sqlite: 'sql',
	jsonc: 'json', json5: 'json', xml: 'html', svg: 'html', vue: 'html', scss: 'css', less: 'css',
}
const PLAIN = ['text', 'txt', 'plain', 'plaintext', 'output', 'diff', 'markdown', 'md']
const lexers = {}
function lexerOf(language) {
	const name = language.toLowerCase(), known = SAME_AS[name] ?? name, kind = Object.hasOwn(SHAPES, known) ? known : ''
	const [comments, strings] = SHAPES[kind], words = kind === 'html' ? '</?[\\w:-]+|/?>' : '[\\p{L}_$][\\p{L}\\p{N}_$]*'
	const numbers = kind === 'html' ? '(?!)' : '(?<![\\p{L}\\p{N}_])(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*'
	const own = new Set(WORDS_OF[kind]?.split(' '))
	return lexers[kind] ??= {
		pieces: new RegExp(`(?<comment>${comments})|(?<string>${strings})|(?<number>${numbers})|(?<word>${words})`, 'gu'),
		isWord: word => kind === 'html' || own.has(kind === 'sql' ? word.toLowerCase() : word),
	}
}
// Beyond this, code has no colours.
const MOST_COLOURED = 60_000

// Colours the source in a node that may show its beginning already: what comes before the last plain line end stays.
function colour(code, source, language) {
	if (PLAIN.includes(language.toLowerCase()) || source.length > MOST_COLOURED) return code.replaceChildren(source)
	const { pieces, isWord } = lexerOf(language)
	let done = code.done
	if (!done || !source.startsWith(done.text)) done = { at: 0, nodes: 0 }
	while (code.childNodes.length > done.nodes) code.lastChild.remove()
	let { at } = done
	const plainTo = end => {
		const line = source.lastIndexOf('\n', end - 1) + 1
		if (line > at) {
			code.append(source.slice(at, line))
			at = line
			done = { at, nodes: code.childNodes.length }
		}
		if (end > at) code.append(source.slice(at, end))
	}
	pieces.lastIndex = at
	for (let found; (found = pieces.exec(source));) {
		const [kind, piece] = Object.entries(found.groups).find(([, each]) => each !== undefined)
		if (kind === 'word' && !isWord(piece)) continue
		plainTo(found.index)
		code.append(make('span', { className: kind, textContent: piece }))
		at = pieces.lastIndex
	}
	plainTo(source.length)
	code.done = { ...done, text: source.slice(0, done.at) }
}
