'use strict'
// LaTeX formulas as MathML nodes. A formula with a command that is not known here stays as it was written.
const MATHML = 'http://www.w3.org/1998/Math/MathML'
const LONGEST_FORMULA = 2000, DEEPEST_FORMULA = 30
const el = (kind, attributes, ...inner) => {
	const made = document.createElementNS(MATHML, kind)
	for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
	made.append(...inner)
	return made
}
const pairs = text => Object.fromEntries(text.trim().split(/\s+/).map(each => each.split('=')))
const range = (names, first) => Object.fromEntries(names.split(' ').map((name, i) => [name, String.fromCodePoint(first + i)]))
// Commands that are one character: letters, signs, and those that are large and carry limits.
const LETTERS = {
	...range('alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau upsilon varphi chi psi omega', 0x3b1),
	...pairs('epsilon=ϵ phi=ϕ vartheta=ϑ varpi=ϖ varrho=ϱ varkappa=ϰ Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω'),
	...pairs('infty=∞ partial=∂ nabla=∇ ell=ℓ hbar=ℏ imath=ı jmath=ȷ emptyset=∅ varnothing=∅ aleph=ℵ Re=ℜ Im=ℑ wp=℘ top=⊤ bot=⊥ angle=∠ triangle=△ degree=° hslash=ℏ square=□ blacksquare=■ Box=□ checkmark=✓ dagger=†'),
}
const SIGNS = pairs(`pm=± mp=∓ times=× div=÷ cdot=⋅ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ wedge=∧ land=∧ vee=∨ lor=∨
	neg=¬ lnot=¬ forall=∀ exists=∃ nexists=∄ le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ll=≪ gg=≫ ne=≠ neq=≠ approx=≈ sim=∼ simeq=≃ cong=≅ equiv=≡ propto=∝ prec=≺ succ=≻ lt=< gt=>
	in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ parallel=∥ perp=⊥ mid=∣ nmid=∤ vdash=⊢ models=⊨ asymp=≍ doteq=≐ triangleq=≜
	to=→ rightarrow=→ leftarrow=← gets=← leftrightarrow=↔ Rightarrow=⇒ implies=⟹ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ mapsto=↦ longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ longmapsto=⟼
	hookrightarrow=↪ rightleftharpoons=⇌ rightharpoonup=⇀ uparrow=↑ downarrow=↓ Uparrow=⇑ Downarrow=⇓ nearrow=↗ searrow=↘ leadsto=⇝ ldots=… dots=… dotsc=… dotsb=⋯ cdots=⋯ vdots=⋮ ddots=⋱ colon=: prime=′
	therefore=∴ because=∵ langle=⟨ rangle=⟩ lvert=| rvert=| lVert=‖ rVert=‖ vert=| Vert=‖ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lbrace={ rbrace=} lbrack=[ rbrack=] backslash=\\ amalg=⨿ diamond=⋄ And=&
	{={ }=} |=‖ $=$ %=% &=& #=# _=_`)
const LARGE = pairs('sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigvee=⋁ bigwedge=⋀ bigoplus=⨁ bigotimes=⨂ int=∫ iint=∬ iiint=∭ oint=∮')
const FUNCTIONS = new Set('sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp arg deg dim ker hom'.split(' '))
const LIMITS = new Set('lim max min sup inf det gcd Pr limsup liminf argmax argmin'.split(' '))
const ACCENTS = pairs('hat=^ widehat=^ check=ˇ bar=¯ overline=¯ vec=→ overrightarrow=→ dot=˙ ddot=¨ tilde=~ widetilde=~ acute=´ grave=` breve=˘ mathring=˚ overbrace=⏞')
const UNDER = pairs('underline=_ underbrace=⏟')
const SPACES = { ',': .17, ':': .22, ';': .28, '!': -.17, ' ': .25, '>': .22, quad: 1, qquad: 2, enspace: .5, thinspace: .17, medspace: .22, thickspace: .28, negthinspace: -.17 }
const NOTHING = new Set('displaystyle textstyle scriptstyle limits nolimits nonumber notag bigl bigr big Big Bigl Bigr bigg Bigg biggl biggr Biggl Biggr hline mathstrut strut'.split(' '))
// Alphabets: where A, a and 0 are, and the letters that have their place elsewhere.
const ALPHABETS = {
	mathbb: [0x1d538, 0x1d552, 0x1d7d8, pairs('C=ℂ H=ℍ N=ℕ P=ℙ Q=ℚ R=ℝ Z=ℤ')], mathbf: [0x1d400, 0x1d41a, 0x1d7ce], mathtt: [0x1d670, 0x1d68a, 0x1d7f6], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
	mathcal: [0x1d49c, 0x1d4b6, 0, pairs('B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ')], mathfrak: [0x1d504, 0x1d51e, 0, pairs('C=ℭ H=ℌ I=ℑ R=ℜ Z=ℨ')], mathrm: [], mathit: [], mathnormal: [],
}
Object.assign(ALPHABETS, { boldsymbol: ALPHABETS.mathbf, bm: ALPHABETS.mathbf, mathscr: ALPHABETS.mathcal, Bbb: ALPHABETS.mathbb, bold: ALPHABETS.mathbf })
const TEXTS = new Set('text textrm textbf textit textsf texttt textnormal mbox hbox operatorname operatorname* tag'.split(' '))
const FENCES = { matrix: ['', ''], smallmatrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], cases: ['{', ''], rcases: ['', '}'], array: ['', ''] }
const LINED = new Set('aligned align align* alignat gathered gather gather* split equation equation* multline multline* eqnarray'.split(' '))
const LATEX = /\\(?:[a-zA-Z]+\*?|[^])|\d+(?:[.,]\d+)*|\s+|[^]/gu
const rowOf = nodes => nodes.length === 1 ? nodes[0] : el('mrow', {}, ...nodes)
const sign = (text, attributes = {}) => el('mo', attributes, text)

class Formula {
	at = 0
	depth = 0
	alphabet = ''
	constructor(source) { this.tokens = source.match(LATEX) ?? [] }
	refuse() { throw new SyntaxError('no formula that is known here') }
	get next() {
		while (/^\s/.test(this.tokens[this.at])) this.at++
		return this.tokens[this.at]
	}
	take() {
		const token = this.next ?? this.refuse()
		this.at++
		return token
	}
	expect(token) { return this.take() === token || this.refuse() }
	// Nodes up to one of some tokens, which stays.
	row(...ends) {
		const nodes = []
		if (++this.depth > DEEPEST_FORMULA) this.refuse()
		while (this.next !== undefined && !ends.includes(this.next)) nodes.push(...this.scripted())
		if (ends.length && this.next === undefined) this.refuse()
		this.depth--
		return nodes
	}
	group() {
		this.expect('{')
		const nodes = this.row('}')
		this.at++
		return rowOf(nodes)
	}
	argument() {
		if (this.next === '{') return this.group()
		// Of a number that is no group, an argument is one digit.
		if (/^\d./.test(this.next)) this.tokens.splice(this.at, 1, ...this.tokens[this.at])
		return rowOf(this.atom())
	}
	optional() {
		if (this.next !== '[') return
		this.at++
		const nodes = this.row(']')
		this.at++
		return rowOf(nodes)
	}
	// The characters of a group as they are.
	words() {
		this.expect('{')
		let text = '', open = 1
		for (; open; this.at++) {
			const token = this.tokens[this.at] ?? this.refuse()
			open += token === '{' ? 1 : token === '}' ? -1 : 0
			if (open) text += token.replace(/^\\(?=[^a-zA-Z])/, '').replace(/^[{}$]$/, '')
		}
		return /\\[a-zA-Z]/.test(text) ? this.refuse() : text.replace(/\s+/g, ' ').replace(/^ | $/g, '\u00a0')
	}
	// An atom with what is below and above it.
	scripted() {
		const base = '^_'.includes(this.next) || this.next === "'" ? [el('mrow', {})] : this.atom()
		let low, high, primes = ''
		for (;;) {
			if (this.next === "'") { this.at++; primes += '′' }
			else if (this.next === '_') { this.at++; low = low ? this.refuse() : this.argument() }
			else if (this.next === '^') { this.at++; high = high ? this.refuse() : this.argument() }
			else break
		}
		if (primes) high = high ? el('mrow', {}, sign(primes), high) : sign(primes)
		if (!low && !high) return base
		if (!base.length) this.refuse()
		const parts = [base.pop(), low, high].filter(Boolean)
		const kind = parts[0].hasLimits ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup']
		return [...base, el(kind[low && high ? 2 : high ? 1 : 0], {}, ...parts)]
	}
	atom() {
		const token = this.take()
		if (token[0] === '\\') return this.command(token.slice(1))
		if (token === '{') { this.at--; return [this.group()] }
		if (token === '}' || token === '&' || token === '^' || token === '_' || token === '$' || token === '#' || token === '%') this.refuse()
		if (token === '~') return [el('mspace', { width: '.25em' })]
		if (/^\d/.test(token)) return [el('mn', {}, this.dress(token))]
		if (/^\p{L}/u.test(token)) return [this.letter(token)]
		return [sign({ '-': '−', '*': '∗' }[token] ?? token, '()[]|/'.includes(token) ? { stretchy: 'false' } : {})]
	}
	letter(text) {
		const dressed = this.dress(text)
		return el('mi', this.alphabet === 'mathrm' ? { mathvariant: 'normal' } : {}, dressed)
	}
	// Characters in the alphabet that is chosen.
	dress(text) {
		const [upper, lower, digit, others = {}] = ALPHABETS[this.alphabet] ?? []
		return upper ? text.replace(/[A-Za-z0-9]/g, each => {
			const start = each < ':' ? digit && digit - 48 : each < '[' ? upper - 65 : lower - 97
			return others[each] ?? (start ? String.fromCodePoint(start + each.codePointAt()) : each)
		}) : text
	}
	command(name) {
		if (NOTHING.has(name)) return []
		if (Object.hasOwn(SPACES, name)) return [el('mspace', { width: `${SPACES[name]}em` })]
		if (Object.hasOwn(LETTERS, name)) return [this.letter(LETTERS[name])]
		if (Object.hasOwn(LARGE, name)) return [this.withLimits(sign(LARGE[name]), !name.endsWith('int'))]
		if (Object.hasOwn(SIGNS, name)) return [sign(SIGNS[name], /^[lr]?[vV]ert$|^[{}|]$|^[lr](?:angle|floor|ceil|brace|brack)$|arrow/.test(name) ? { stretchy: 'false' } : {})]
		if (FUNCTIONS.has(name)) return [el('mi', {}, name), sign('\u2061')].slice(0, '^_'.includes(this.next) ? 1 : 2)
		if (LIMITS.has(name)) return [this.withLimits(sign(name.replace(/^(lim|arg)(?=.)/, '$1\u2009'), { movablelimits: 'true', lspace: '0', rspace: '.17em' }), true)]
		if (Object.hasOwn(ACCENTS, name)) return [this.withLimits(el('mover', { accent: 'true' }, this.argument(), sign(ACCENTS[name], { stretchy: String(/^(wide|over)/.test(name)) })), name === 'overbrace')]
		if (Object.hasOwn(UNDER, name)) return [this.withLimits(el('munder', { accentunder: 'true' }, this.argument(), sign(UNDER[name], { stretchy: 'true' })), name === 'underbrace')]
		if (Object.hasOwn(ALPHABETS, name)) return [this.in(name)]
		if (TEXTS.has(name)) return [this.textual(name)]
		return Object.hasOwn(this.made, name) ? [this.made[name]()].flat() : this.refuse()
	}
	withLimits(node, has) { return Object.assign(node, { hasLimits: has }) }
	in(alphabet) {
		const outer = this.alphabet
		this.alphabet = alphabet
		const node = this.argument()
		this.alphabet = outer
		return node
	}
	textual(name) {
		const text = this.words()
		if (name.startsWith('operatorname')) return this.withLimits(sign(text.trim(), { lspace: '0', rspace: '.17em', movablelimits: 'true' }), name.endsWith('*'))
		return el('mtext', { class: name }, name === 'tag' ? `\u2003(${text})` : text)
	}
	fraction(attributes = {}) { return el('mfrac', attributes, this.argument(), this.argument()) }
	delimiter() {
		const token = this.take(), name = token.slice(1)
		if (token === '.') return ''
		if (token[0] === '\\') return Object.hasOwn(SIGNS, name) ? SIGNS[name] : this.refuse()
		return { '<': '⟨', '>': '⟩' }[token] ?? token
	}
	stacked(kind) {
		const [mark, base] = [this.argument(), this.argument()]
		return el(kind, {}, base, mark)
	}
	// Cells of lines, up to the end of an environment.
	table(name) {
		const lines = [[]]
		for (;;) {
			lines.at(-1).push(rowOf(this.row('&', '\\\\', '\\end')))
			const token = this.take()
			if (token === '\\end') break
			if (token === '\\\\') { this.optional(); lines.push([]) }
		}
		if (this.words() !== name) this.refuse()
		if (lines.at(-1).length === 1 && !lines.at(-1)[0].childNodes.length) lines.pop()
		const kind = LINED.has(name) ? 'lined' : name.endsWith('cases') ? 'cases' : ''
		return el('mtable', { class: kind, ...kind === 'lined' && { displaystyle: 'true' } }, ...lines.map(cells => el('mtr', {}, ...cells.map(each => el('mtd', {}, each)))))
	}
	made = {
		frac: () => this.fraction(), tfrac: () => this.fraction(), dfrac: () => this.fraction({ displaystyle: 'true' }), cfrac: () => this.fraction({ displaystyle: 'true' }),
		binom: () => [sign('('), this.fraction({ linethickness: '0' }), sign(')')].reduce((row, each) => (row.append(each), row), el('mrow', {})),
		sqrt: () => { const index = this.optional(); return index ? el('mroot', {}, this.argument(), index) : el('msqrt', {}, this.argument()) },
		overset: () => this.stacked('mover'), stackrel: () => this.stacked('mover'), underset: () => this.stacked('munder'),
		xrightarrow: () => el('mover', {}, sign('→', { stretchy: 'true' }), el('mpadded', { width: '+1em', lspace: '.5em' }, this.argument())),
		boxed: () => el('mrow', { class: 'boxed' }, this.argument()),
		not: () => { const node = this.argument(); node.append('\u0338'); return node },
		bmod: () => sign('mod', { lspace: '.22em', rspace: '.22em' }), pmod: () => [el('mspace', { width: '.5em' }), sign('('), sign('mod', { rspace: '.22em' }), this.argument(), sign(')')],
		middle: () => sign(this.delimiter(), { stretchy: 'true', lspace: '.1em', rspace: '.1em' }),
		left: () => {
			const open = this.delimiter(), inner = this.row('\\right')
			this.at++
			return el('mrow', {}, sign(open, { form: 'prefix', stretchy: 'true' }), ...inner, sign(this.delimiter(), { form: 'postfix', stretchy: 'true' }))
		},
		begin: () => {
			const name = this.words(), [open, close] = Object.hasOwn(FENCES, name) ? FENCES[name] : LINED.has(name) ? ['', ''] : this.refuse()
			if (name === 'array' || name === 'alignat') this.words()
			const table = this.table(name)
			return el('mrow', {}, ...open ? [sign(open, { form: 'prefix', stretchy: 'true' })] : [], table, ...close ? [sign(close, { form: 'postfix', stretchy: 'true' })] : [])
		},
	}
	whole() {
		// Lines without an environment.
		if (!this.tokens.includes('\\\\') || this.tokens.includes('\\begin')) return this.row()
		this.tokens.push('\\end', '{', ...'gathered', '}')
		const table = this.table('gathered')
		return this.next === undefined ? [table] : this.refuse()
	}
}

// The node of a formula, or null if it is none that is known here.
function formula(source, isBlock = false) {
	if (!source.trim() || source.length > LONGEST_FORMULA) return null
	try {
		return el('math', { display: isBlock ? 'block' : 'inline', alttext: source.trim() }, ...new Formula(source).whole())
	} catch (error) {
		if (error instanceof SyntaxError) return null
		throw error
	}
}

// Where a formula within a paragraph ends, or 0. Amounts of money are no formulas.
const CLOSERS = { '\\(': '\\)', '\\[': '\\]', '$$': '$$', $: '$' }
const AMOUNT = /^\d[\d.,]*\s[^\\]*[a-z]{2}/i
function formulaEnd(source, at, opener) {
	const start = at + opener.length, closer = CLOSERS[opener]
	if (opener === '$' && (/[\p{L}\p{N}]/u.test(source[at - 1] ?? '') || /\s/.test(source[start] ?? ' '))) return 0
	let end = start
	const last = Math.min(source.length, start + LONGEST_FORMULA)
	while (end < last && !source.startsWith(closer, end)) end += source[end] === '\\' ? 2 : 1
	if (end >= last || end === start) return 0
	const inner = source.slice(start, end)
	if (inner.includes('`')) return 0
	if (opener === '$' && (/\s$/.test(inner) || /[\p{L}\p{N}]/u.test(source[end + 1] ?? '') || AMOUNT.test(inner))) return 0
	return end + closer.length
}
