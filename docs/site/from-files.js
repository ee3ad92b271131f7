// Browsers give pages that are opened as files neither a worker nor other files. So there the index comes as this script, and
// the theme's search runs in a frame that passes for a worker. `make site` puts the index in front.
window.__search = { index: Promise.resolve(rdistccSearchIndex) }
window.Worker = class extends EventTarget {
  constructor(url) {
    super()
    this.early = [] // messages from before the frame is there
    const start = () => {
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.window = frame.contentWindow
      this.window.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.window.document.createElement("script")
      script.src = url
      script.onload = () => {
        this.ready = true
        this.early.splice(0).forEach(data => this.postMessage(data))
      }
      this.window.document.head.append(script)
    }
    document.body ? start() : addEventListener("DOMContentLoaded", start)
  }
  postMessage(data) {
    if (!this.ready) this.early.push(data)
    else this.window.dispatchEvent(new this.window.MessageEvent("message", { data }))
  }
  terminate() {}
}
