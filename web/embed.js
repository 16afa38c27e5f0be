/**
 * The voice agent on any page: one script, one element.
 *
 *     <script type="module" src="(the server)/embed.js"></script>
 *     <voice-agent></voice-agent>
 *
 * Attributes: `key`, an API key for servers that want one (visible to whoever reads the page: give short-lived ones);
 * `label`, the button's word. The other page's origin must be among the server's allowed_origins.
 */

import { Captions } from "./captions.js";
import { Conversation } from "./conversation.js";
import { Server } from "./peer.js";
import { isLive, isRunning, word } from "./state.js";

const SHOWN = 4; // captions
const LOOKS = `
  :host { display: block; max-width: 24rem; font: 1rem/1.45 system-ui, sans-serif; color: CanvasText; }
  div { display: flex; align-items: center; gap: .75rem; }
  button { font: inherit; font-weight: 650; color: #fff; background: #3355e6; border: 0; border-radius: 99px;
    padding: .65rem 1.3rem; cursor: pointer; }
  button:focus-visible { outline: 3px solid currentColor; outline-offset: 2px; color: #3355e6; }
  [hidden] { display: none; }
  [role=log] { margin-top: .6rem; }
  p { margin: .35rem 0; overflow-wrap: anywhere; }
  .unseen { font-weight: 650; }
  .rest, .waiting, small { opacity: .72; }
`;

/** Everything is kept for as long as the element is there. */
class Memory {
  /** @type {Map<string, string>} */
  kept = new Map();

  /** @param {string} name */
  getItem(name) {
    return this.kept.get(name) ?? null;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  setItem(name, value) {
    this.kept.set(name, value);
  }

  /** @param {string} name */
  removeItem(name) {
    this.kept.delete(name);
  }
}

class VoiceAgent extends HTMLElement {
  /** @type {Conversation|null} */
  conversation = null;

  connectedCallback() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    const looks = new CSSStyleSheet();
    looks.replaceSync(LOOKS);
    root.adoptedStyleSheets = [looks];
    const button = made("button", { type: "button" });
    const state = made("span", { role: "status" });
    const notice = made("p", { role: "alert" });
    const log = made("section", { role: "log", ariaLabel: "Captions" });
    const speaker = Object.assign(document.createElement("audio"), { autoplay: true });
    const row = made("div", {});
    row.append(button, state);
    root.replaceChildren(row, notice, log, Object.assign(made("small", {}), { textContent: "You are talking to an AI." }), speaker);
    const captions = new Captions(log);
    const server = new Server(new URL("./", import.meta.url), () => this.getAttribute("key") ?? "");
    const memory = new Memory();
    const show = () => {
      const { model } = conversation;
      this.dataset.state = model.state;
      button.textContent = isRunning(model) ? "End" : (this.getAttribute("label") ?? "Talk to us");
      state.textContent = word(model);
      notice.textContent = model.message || (isLive(model) ? model.microphone : "");
      notice.hidden = notice.textContent === "";
      captions.show(conversation.captions.slice(-SHOWN));
    };
    const onChange = () => queueMicrotask(show);
    const conversation = new Conversation({ server, speaker, tab: memory, ever: memory, onChange });
    this.conversation = conversation;
    button.addEventListener("click", () =>
      isRunning(conversation.model) ? conversation.stop() : conversation.start({ fresh: false }),
    );
    addEventListener("pagehide", () => conversation.leave());
    show();
    conversation.look();
  }

  disconnectedCallback() {
    this.conversation?.stop();
  }
}

/**
 * @param {string} tag
 * @param {Partial<HTMLElement> & {type?: string}} properties
 * @returns {HTMLElement}
 */
function made(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

customElements.define("voice-agent", VoiceAgent);
