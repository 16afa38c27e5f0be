/**
 * The audio thread's half of sound.js: how loud each 10 ms are, sent five at a time. Keeps no sound.
 */

const BLOCK_SAMPLES = Math.round(sampleRate / 100);
const BLOCKS_PER_MESSAGE = 5;

registerProcessor(
  "ear",
  class extends AudioWorkletProcessor {
    samples = 0;
    energy = 0;
    /** @type {number[]} */
    levels = [];

    /**
     * @param {Float32Array[][]} inputs
     * @returns {boolean}
     */
    process([input]) {
      const sound = input[0]; // none while nothing is connected
      for (let n = 0; n < 128; n += 1) {
        if (sound) this.energy += sound[n] * sound[n];
        this.samples += 1;
        if (this.samples === BLOCK_SAMPLES) this.close(n + 1);
      }
      return true;
    }

    /** @param {number} offset  samples of this call that belong to the block */
    close(offset) {
      this.levels.push(10 * Math.log10(this.energy / this.samples + 1e-12));
      this.samples = 0;
      this.energy = 0;
      if (this.levels.length < BLOCKS_PER_MESSAGE) return;
      this.port.postMessage({ endMs: 1000 * (currentTime + offset / sampleRate), levels: this.levels });
      this.levels = [];
    }
  },
);
