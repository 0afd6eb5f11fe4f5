// A result beside what was commanded, played in step, the commanded horizon drawn over both.
export default {
  template: `
    <div class="compare">
      <figure>
        <div class="stage"><video ref="made" :src="made" :style="shape" controls loop muted playsinline preload="auto" :aria-label="label"></video>
          <svg :viewBox="box" preserveAspectRatio="none" aria-hidden="true"><path class="horizon" :d="line"></path></svg></div>
        <figcaption>generated</figcaption>
      </figure>
      <figure>
        <div class="stage"><video ref="commanded" :src="commanded" :style="shape" loop muted playsinline preload="auto" tabindex="-1"
            aria-label="What was commanded"></video>
          <svg :viewBox="box" preserveAspectRatio="none" aria-hidden="true"><path class="horizon" :d="line"></path></svg></div>
        <figcaption>commanded</figcaption>
      </figure>
    </div>`,
  props: { made: String, commanded: String, lines: Array, fps: Number, width: Number, height: Number, label: String },
  data: () => ({ line: "" }),
  computed: {
    box() { return `0 0 ${this.width} ${this.height}`; },
    shape() { return { aspectRatio: `${this.width} / ${this.height}` }; },
  },
  mounted() {
    const follow = () => {
      const [made, commanded] = [this.$refs.made, this.$refs.commanded];
      if (!made || !commanded) return;
      const frame = Math.min(Math.floor(made.currentTime * this.fps + 0.01), this.lines.length - 1);
      this.line = this.lines[frame] || "";
      if (made.paused !== commanded.paused) made.paused ? commanded.pause() : commanded.play();
      if (Math.abs(commanded.currentTime - made.currentTime) > 0.6 / this.fps && !commanded.seeking) {
        commanded.currentTime = made.currentTime;
      }
      this.next = requestAnimationFrame(follow);
    };
    this.next = requestAnimationFrame(follow);
  },
  unmounted() { cancelAnimationFrame(this.next); },
};
