// The parts of a page that tests need; import it before the tested modules. It has no tests.

/** Notifications that are shown: the text of each, by its tag. */
export const shown = new Map<string, string>();

Object.assign(globalThis, {
  location: { hash: "" },
  addEventListener: () => {},
  navigator: {},
  document: { title: "", visibilityState: "hidden", hasFocus: () => false },
  Notification: class {
    static permission = "granted";
    #tag: string;
    constructor(_title: string, { body, tag }: { body: string; tag: string }) {
      this.#tag = tag;
      shown.set(tag, body);
    }
    close() {
      shown.delete(this.#tag);
    }
  },
});
