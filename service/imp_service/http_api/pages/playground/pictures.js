'use strict'
// Pictures of the message that is being written: chosen with the button, dropped or pasted.
const PICTURES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif']
let pictures = []
const urlOf = file => new Promise((done, fail) => {
	const reader = new FileReader()
	reader.onload = () => done(reader.result)
	reader.onerror = fail
	reader.readAsDataURL(file)
})
async function addPictures(files) {
	const fit = [...files].filter(({ type }) => PICTURES.includes(type))
	pictures.push(...await Promise.all(fit.map(urlOf)))
	showPictures(fit.length < files.length)
}
function showPictures(isUnfit) {
	$('unfit').hidden = !isUnfit
	$('pictures').replaceChildren(...small(pictures).map((picture, i) => {
		const remove = iconButton(`Remove picture ${i + 1}`, 'close', () => { pictures.splice(i, 1); showPictures(); text.focus() })
		return make('span', {}, picture, remove)
	}))
}
// The pictures for a message, which then has them.
function takePictures() {
	const taken = pictures
	pictures = []
	showPictures()
	return taken
}
const small = urls => urls.map((src, i) => make('img', { src, alt: `Picture ${i + 1}` }))
const contentOf = (text, urls) => urls.length ? [...urls.map(url => ({ type: 'image_url', image_url: { url } })), { type: 'text', text }] : text
const urlsIn = ({ content }) => Array.isArray(content) ? content.flatMap(({ image_url: image }) => image ? [image.url] : []) : []
// The first answer of a turn is always to its message; later ones may go on from tokens.
const picturesOf = ({ answers: [{ request: { body: { messages } } }] }) => urlsIn(messages.findLast(({ role }) => role === 'user'))
// Whether there are pictures in the prompt of an answer: then its tokens alone are not the prompt.
const hasPictures = ({ request: { body: { messages = [] } } }) => messages.some(message => urlsIn(message).length)
const pictureTokens = ({ usage } = {}) => usage?.prompt_tokens_details.image_tokens ?? 0
$('picture').onclick = () => $('file').click()
$('file').onchange = async () => { await addPictures($('file').files); $('file').value = ''; text.focus() }
$('text').onpaste = event => {
	const { files } = event.clipboardData
	if (!model.seesPictures || !files.length) return
	event.preventDefault()
	addPictures(files)
}
document.ondragover = event => { if (model.seesPictures && event.dataTransfer.types.includes('Files')) event.preventDefault() }
document.ondrop = event => {
	if (!model.seesPictures || !event.dataTransfer.files.length) return
	event.preventDefault()
	addPictures(event.dataTransfer.files)
}
