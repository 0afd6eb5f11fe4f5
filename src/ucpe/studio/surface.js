// A picture that follows the server, an SVG drawing over it, and the pointer, wheel and keys that move things in it.
// A drag is reported again only once the picture of the last report is shown, so a slow machine skips, never lags.
const SLOWEST_REPORT = 250; // milliseconds

export default {
  template: `
    <div class="surface" tabindex="0" role="application" :aria-label="label" :aria-keyshortcuts="keys.join(' ')"
        :style="{aspectRatio: width + ' / ' + height}"
        @pointerdown="down" @pointermove="move" @pointerup="up" @pointercancel="up"
        @wheel.prevent="wheel" @keydown="keydown">
      <canvas ref="canvas" :width="width" :height="height" aria-hidden="true"></canvas>
      <svg :viewBox="'0 0 ' + width + ' ' + height" aria-hidden="true" v-html="drawn"></svg>
    </div>`,
  props: {
    source: { type: String, default: "" },
    overlay: { type: String, default: "" },
    label: String,
    width: Number,
    height: Number,
    keys: { type: Array, default: () => [] },
  },
  data: () => ({ drawn: "" }),
  created() {
    this.loading = this.waiting = this.scheduled = false;
    this.moved = this.held = null;
    this.turned = 0;
    this.reported = 0;
  },
  mounted() {
    this.$el.dataset.pictures = 0;
    this.refresh();
  },
  watch: {
    source() { this.refresh(); },
    overlay() { if (!this.loading) this.refresh(); },
  },
  methods: {
    async refresh() {
      if (this.loading) { this.waiting = true; return; }
      const [source, overlay] = [this.source, this.overlay];
      if (source && source !== this.$el.dataset.shown) {
        this.loading = true;
        try {
          const answer = await fetch(source, { cache: "no-store" });
          if (answer.ok) {
            const bitmap = await createImageBitmap(await answer.blob(), { colorSpaceConversion: "none" });
            const canvas = this.$refs.canvas;
            if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
              [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
            }
            canvas.getContext("2d").drawImage(bitmap, 0, 0);
            this.$el.dataset.pictures = Number(this.$el.dataset.pictures) + 1;
          }
          this.$el.dataset.shown = source;
        } catch (error) {
          console.warn("no picture", error);
        } finally {
          this.loading = false;
        }
      }
      this.drawn = overlay;
      this.reported = 0;
      if (this.waiting) { this.waiting = false; this.refresh(); }
      if (this.moved) this.schedule();
    },
    place(event) {
      const box = this.$el.getBoundingClientRect();
      return {
        x: (event.clientX - box.left) / box.width * this.width,
        y: (event.clientY - box.top) / box.height * this.height,
        shift: event.shiftKey, alt: event.altKey,
      };
    },
    down(event) {
      if (event.button > 0) return;
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
      this.schedule();
    },
    up() {
      if (!this.held) return;
      this.held = null;
      this.report();
      this.$emit("release");
    },
    wheel(event) {
      this.turned += Math.max(-200, Math.min(200, event.deltaY * (event.deltaMode ? 30 : 1)));
      this.schedule();
    },
    keydown(event) {
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (event.ctrlKey || event.metaKey || event.altKey || !this.keys.includes(key)) return;
      event.preventDefault();
      this.$emit("press_key", { key, shift: event.shiftKey });
    },
    schedule() {
      if (this.scheduled) return;
      this.scheduled = true;
      requestAnimationFrame(() => {
        this.scheduled = false;
        if (this.reported && performance.now() - this.reported < SLOWEST_REPORT) {
          if (!this.loading) setTimeout(() => this.schedule(), 8);
          return;
        }
        this.report();
      });
    },
    report() {
      if (this.moved) { this.reported = performance.now(); this.$emit("drag", this.moved); this.moved = null; }
      if (this.turned) { this.$emit("turn_wheel", { delta: this.turned }); this.turned = 0; }
    },
  },
};
