/** A WebSocket: passes frames on, and tells how it ended. For browsers and `ws`. */

import type { ClientFrame, ServerFrame } from "../wire/frames.ts";

const FRAMES_MAX = 256;
const BYTES_MAX = 65_536;
/** UTF-8 has at most three bytes for each unit of a string's length. */
const CHARACTERS_MAX = BYTES_MAX / 3 - FRAMES_MAX;
/** How long to wait for the server's close frame after we have closed. */
const GOODBYE_MS_MAX = 1000;

export interface Hearing {
  onOpen(): void;
  onFrame(frame: ServerFrame): void;
  /** `wasOpen` false: the socket could not be opened, and the browser does not tell why. */
  onEnd(code: number, wasOpen: boolean): void;
}

/** One connection. `onEnd` is called once, but not after `letGo`. */
export class Socket {
  /** The server accepts arrays: frames of one turn of the event loop are sent together. */
  isBatching = false;
  private _socket: WebSocket;
  private _out: string[] = [];
  private _wasOpen = false;
  private _isLetGo = false;
  private _gone: Promise<void>;

  constructor(
    maker: typeof WebSocket,
    url: string,
    protocols: string[],
    private _hearing: Hearing,
  ) {
    const socket = new maker(url, protocols);
    this._socket = socket;
    socket.onopen = () => {
      this._wasOpen = true;
      if (!this._isLetGo) _hearing.onOpen();
    };
    socket.onmessage = ({ data }) => this._hear(String(data));
    // `onclose` follows, and says everything that is known.
    socket.onerror = () => {};
    this._gone = new Promise((resolve) => {
      socket.onclose = ({ code }) => {
        resolve();
        if (!this._isLetGo) {
          this._isLetGo = true;
          _hearing.onEnd(code, this._wasOpen);
        }
      };
    });
  }

  private _hear(text: string): void {
    let said: ServerFrame | ServerFrame[];
    try {
      said = JSON.parse(text);
    } catch (error) {
      console.warn("tidewire: a message of the server is no JSON", error);
      return;
    }
    for (const frame of Array.isArray(said) ? said : [said])
      if (!this._isLetGo) this._hearing.onFrame(frame);
  }

  send(frame: ClientFrame): void {
    const text = JSON.stringify(frame);
    if (!this.isBatching) {
      this._say(text);
      return;
    }
    if (!this._out.length) queueMicrotask(() => this._flush());
    this._out.push(text);
  }

  private _flush(): void {
    const out = this._out;
    this._out = [];
    while (out.length) {
      let size = out[0]!.length;
      let count = 1;
      while (count < out.length && count < FRAMES_MAX) {
        size += out[count]!.length;
        if (size > CHARACTERS_MAX) break;
        count++;
      }
      const together = out.splice(0, count);
      this._say(count === 1 ? together[0]! : `[${together.join()}]`);
    }
  }

  private _say(text: string): void {
    // A frame for a socket that ends is dropped: the next connection sends what is still needed.
    if (this._socket.readyState === 1) this._socket.send(text);
  }

  /** Close the socket; no handler is called any more. */
  letGo(code: number): void {
    this._isLetGo = true;
    this._flush();
    this._socket.close(code);
  }

  /** Wait until the socket is closed, `GOODBYE_MS_MAX` at most. */
  gone(): Promise<unknown> {
    let timer: ReturnType<typeof setTimeout>;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, GOODBYE_MS_MAX);
    });
    return Promise.race([this._gone, late]).finally(() => clearTimeout(timer));
  }
}
