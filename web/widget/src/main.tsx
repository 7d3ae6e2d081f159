// <tidewire-chat chat="…">: one chat, in a page of another site.
//
// It is in a shadow root: the page's styles do not affect it, and its own do not affect the page.
// The page tells who the user is: `element.getToken` returns a token of the page's own identity
// provider, and is called again before that token expires.

import style from "style:./style.css";
import { Client } from "@tidewire/client";
import { render } from "preact";
import { Live } from "../../app/src/model/live.ts";
import { LANGUAGES, type Language, preferredLanguage, speak } from "../../app/src/words/index.ts";
import { type Phase, Widget } from "./widget.tsx";

export type GetToken = () => string | Promise<string>;

let server = "";
/** One client for all widgets of a page with the same user, by issuer and subject of the token. */
const clients = new Map<string, Promise<Client>>();

export class TidewireChat extends HTMLElement {
  static readonly observedAttributes = ["chat"];

  #getToken: GetToken | undefined;
  #round = 0;
  #live: Live | null = null;
  #isShown = false;
  #watcher: IntersectionObserver | undefined;

  constructor() {
    super();
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    this.attachShadow({ mode: "open" }).adoptedStyleSheets = [sheet];
  }

  /** A function that returns a token of the user of the page. Setting it connects. */
  get getToken(): GetToken | undefined {
    return this.#getToken;
  }

  set getToken(get: GetToken | undefined) {
    this.#getToken = get;
    this.#begin();
  }

  connectedCallback(): void {
    // The page may have set it before this class was defined.
    if (Object.hasOwn(this, "getToken")) {
      const { getToken } = this;
      delete (this as { getToken?: GetToken }).getToken;
      this.#getToken = getToken;
    }
    this.#watcher = new IntersectionObserver(([entry]) => {
      this.#isShown = entry?.isIntersecting ?? false;
    });
    this.#watcher.observe(this);
    this.#begin();
  }

  disconnectedCallback(): void {
    this.#watcher?.disconnect();
    this.#end();
    this.#show({ kind: "opening" });
  }

  attributeChangedCallback(): void {
    this.#begin();
  }

  /** Connect if chat and token are known. An earlier attempt is dropped. */
  #begin(): void {
    if (!this.isConnected) return;
    this.#end();
    const round = this.#round;
    const chatId = this.getAttribute("chat");
    const getToken = this.#getToken;
    this.#show({ kind: "opening" });
    if (!chatId || !getToken) return;
    void speak(this.#language());
    clientOf(getToken).then(
      (client) => {
        if (round !== this.#round) return;
        this.#live = new Live(client);
        this.#show({ kind: "in", live: this.#live, chatId });
      },
      (error: unknown) => {
        if (round !== this.#round) return;
        console.error("tidewire-chat:", error);
        this.#show({ kind: "failed", retry: () => this.#begin() });
      },
    );
  }

  #end(): void {
    this.#round++;
    this.#live?.end();
    this.#live = null;
  }

  #language(): Language {
    const wanted = (this.lang || document.documentElement.lang).slice(0, 2).toLowerCase();
    return wanted in LANGUAGES ? (wanted as Language) : preferredLanguage();
  }

  #show(phase: Phase): void {
    const isSeen = (): boolean =>
      this.#isShown && document.visibilityState === "visible" && document.hasFocus();
    render(<Widget phase={phase} isSeen={isSeen} />, this.shadowRoot!);
  }
}

/** The client of the user of a token. */
async function clientOf(getToken: GetToken): Promise<Client> {
  const person = subjectOf(await getToken());
  let client = clients.get(person);
  if (!client) {
    client = Client.open(server, { getToken, store: `tidewire ${server} ${person}` });
    clients.set(person, client);
    const forget = () => clients.delete(person);
    client.then((opened) => opened.closed.then(forget), forget);
  }
  return client;
}

/** The user of a token. It only names the database in this browser; the server checks the token. */
function subjectOf(token: string): string {
  try {
    const payload = token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0));
    const { iss, sub } = JSON.parse(new TextDecoder().decode(bytes));
    return `${iss ?? ""} ${sub ?? ""}`;
  } catch {
    return "";
  }
}

/** Called by the loader, with the origin of the server that it was loaded from. */
export function define(from: string): void {
  server = from;
  if (!customElements.get("tidewire-chat")) customElements.define("tidewire-chat", TidewireChat);
}
