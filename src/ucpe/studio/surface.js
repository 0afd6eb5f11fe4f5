// A picture that follows the server, an SVG drawing over it, and the pointer, wheel and keys that move things in it.
// Moves that happen while a picture loads are reported together, so a slow machine skips, never lags.
const SLOWEST_ANSWER = 400; // milliseconds after which a report without an answer is forgotten
const STILL_AFTER = 120; // milliseconds without a change after which the exact picture replaces the quick one
const DECODING = { colorSpaceConversion: "none" }; // the pixels as they were sent

export default {
  template: `
    <div class="surface" tabindex="0" role="application" :aria-label="label" :aria-keyshortcuts="keys.join(' ')"
        :style="{aspectRatio: width + ' / ' + height}"
        @pointerdown="down" @pointermove="move" @pointerup="up" @pointercancel="up"
        @wheel.prevent="wheel" @keydown="keydown">
      <canvas ref="canvas" aria-hidden="true"></canvas>
      <svg ref="drawing" :viewBox="'0 0 ' + width + ' ' + height" aria-hidden="true">
        <path v-for="line in lines" :class="line"></path>
      </svg>
    </div>`,
  props: {
    label: String,
    width: Number,
    height: Number,
    keys: { type: Array, default: () => [] },
    lines: { type: Array, default: () => [] }, // what the pictures bring, and are quick first and exact after
    address: String, // of the picture, where drags are sent to it and answered by it; otherwise they are events
  },
  created() {
    this.loading = this.reported = this.released = false;
    this.wanted = this.moved = this.held = null;
    this.turned = 0;
    this.exact = new AbortController();
  },
  mounted() {
    this.$el.dataset.pictures = 0;
  },
  methods: {
    draw(drawing) {
      this.$refs.drawing.innerHTML = drawing;
    },
    async follow(source) {
      this.wanted = source;
      clearTimeout(this.rest);
      this.exact.abort();
      if (this.loading) return;
      this.loading = true;
      let shown = null;
      while (this.wanted !== null) {
        source = this.wanted;
        this.wanted = null;
        const loaded = this.load(source);
        this.report();
        const answer = await loaded;
        await shown; // the one before was decoded and painted while this one was made
        shown = this.show(source, answer);
        if (this.wanted === null) await shown; // meanwhile another may be wanted
      }
      this.loading = false;
      if (this.released) this.release();
      if (this.lines.length) this.sharpen(source);
    },
    sharpen(source) {
      this.rest = setTimeout(async () => {
        if (this.reported) { this.sharpen(source); return; }
        const { signal } = this.exact = new AbortController();
        source += "?exact=1";
        this.show(source, await this.load(source, signal), signal);
      }, STILL_AFTER);
    },
    async load(source, signal) { // picture and lines over it; null if there is none
      try {
        const answer = source && await fetch(source, { cache: "no-store", signal, ...this.moveToSend() });
        if (!answer.ok) return null;
        const [size, body] = [Number(answer.headers.get("picture-bytes")), await answer.arrayBuffer()];
        const lines = JSON.parse(new TextDecoder().decode(new Uint8Array(body, size)));
        return { picture: new Blob([new Uint8Array(body, 0, size)]), lines };
      } catch (error) {
        if (!signal?.aborted) console.warn("no picture", error);
        return null;
      }
    },
    moveToSend() {
      if (!this.address || !this.moved) return {};
      const body = JSON.stringify(this.moved);
      this.moved = null;
      return { method: "POST", headers: { "content-type": "application/json" }, body };
    },
    async show(source, answer, signal) {
      const canvas = this.$refs.canvas;
      if (!source) canvas.width = canvas.width;
      const picture = answer && await createImageBitmap(answer.picture, DECODING).catch(console.warn);
      if (!picture || signal?.aborted) return;
      if (canvas.width !== picture.width || canvas.height !== picture.height) {
        [canvas.width, canvas.height] = [picture.width, picture.height];
      }
      canvas.getContext("2d").drawImage(picture, 0, 0);
      answer.lines.forEach((line, index) => this.$refs.drawing.children[index].setAttribute("d", line));
      this.$el.dataset.pictures = Number(this.$el.dataset.pictures) + 1;
      this.$el.dataset.shown = source;
    },
    place(event) {
      const box = this.box;
      return {
        x: (event.clientX - box.left) / box.width * this.width,
        y: (event.clientY - box.top) / box.height * this.height,
        shift: event.shiftKey, alt: event.altKey,
      };
    },
    down(event) {
      if (event.button > 0) return;
      this.box = this.$el.getBoundingClientRect();
      this.$el.focus({ preventScroll: true });
      this.$el.setPointerCapture(event.pointerId);
      this.held = this.place(event);
      this.$emit("press", this.held);
      event.preventDefault();
    },
    move(event) {
      if (!this.held) return;
      const place = this.place(event);
      const before = this.moved || { dx: 0, dy: 0 };
      this.moved = { ...place, dx: before.dx + place.x - this.held.x, dy: before.dy + place.y - this.held.y };
      this.held = place;
      this.report();
    },
    up() {
      if (!this.held) return;
      this.held = null;
      this.flush();
      this.released = true;
      if (!this.loading) this.release();
    },
    release() { // after every move, however it was sent
      this.released = false;
      this.$emit("release");
    },
    wheel(event) {
      this.turned += Math.max(-200, Math.min(200, event.deltaY * (event.deltaMode ? 30 : 1)));
      this.report();
    },
    keydown(event) {
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (event.ctrlKey || event.metaKey || event.altKey || !this.keys.includes(key)) return;
      event.preventDefault();
      this.$emit("press_key", { key, shift: event.shiftKey });
    },
    report() {
      if (this.wanted === null && !this.reported) this.flush();
    },
    flush() {
      if (this.address && this.moved) this.follow(this.address);
      else this.send();
    },
    send() {
      if (!this.moved && !this.turned) return;
      this.reported = true;
      this.patience = setTimeout(this.answered, SLOWEST_ANSWER);
      if (this.moved) this.$emit("drag", this.moved);
      if (this.turned) this.$emit("turn_wheel", { delta: this.turned });
      this.moved = null;
      this.turned = 0;
    },
    answered() {
      clearTimeout(this.patience);
      this.reported = false;
      this.report();
    },
  },
};
