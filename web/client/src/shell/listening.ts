/** The stream of events: read from the store in stored order, and confirmed by going on. Loaded at
 * the first call of `events()`, which is for bots. */

import type { Row } from "../core/fold.ts";
import type { ClientEvent } from "../types.ts";
import type { Backend } from "./backend.ts";
import type { Client } from "./client.ts";
import { eventOf } from "./events.ts";
import { fact, type Happening, putMeta, type StoredRow } from "./tables.ts";

const CHUNK = 100;
const FLEETING_MAX = 1000;

/** `for await (const event of client.events())`. It ends when the application closes the client,
 * and throws if the client is closed for another reason. */
export class Events implements AsyncIterableIterator<ClientEvent> {
  private _ready: ClientEvent[] = [];
  private _last: ClientEvent | null = null;
  /** Events that are not stored: only the latest of each key is kept. */
  private _fleeting = new Map<string, ClientEvent>();
  private _hasNews = true;
  private _isOver = false;
  private _stop: () => void;

  constructor(
    private _client: Client,
    private _after: number,
  ) {
    this._stop = _client.on((event) => {
      this._hasNews = true;
      if (event.position) return;
      const key = JSON.stringify({ ...event, status: 0, isTyping: 0 });
      this._fleeting.delete(key);
      this._fleeting.set(key, event);
      if (this._fleeting.size > FLEETING_MAX)
        this._fleeting.delete(this._fleeting.keys().next().value!);
    });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<ClientEvent>> {
    const client = this._client;
    if (this._last) client.confirm(this._last);
    this._last = null;
    while (!this._ready.length) {
      const { state, reason } = client.status;
      const isClosed = state === "closed";
      if (this._isOver || (isClosed && reason === "closed")) return this.return();
      this._hasNews = false;
      if (!isClosed) await this._read();
      if (!this._ready.length) {
        this._ready.push(...this._fleeting.values());
        this._fleeting.clear();
      }
      if (!this._ready.length) {
        try {
          await client._until("", () => this._hasNews || this._isOver);
        } catch (error) {
          if (client.status.reason !== "closed") throw error;
        }
      }
    }
    const value = this._ready.shift()!;
    this._last = value;
    if ("message" in value) {
      const { chatId, sequence } = value.message;
      client._seen.set(chatId, Math.max(client._seen.get(chatId) ?? 0, sequence));
    }
    return { done: false, value };
  }

  private async _read(): Promise<void> {
    const [events, offered] = await nextEvents(this._client._tables.backend, this._after, CHUNK);
    for (const one of events) {
      this._after = one.position;
      const event = eventOf(this._client, one, one.position <= offered);
      if (event) this._ready.push(event);
    }
  }

  async return(): Promise<IteratorReturnResult<undefined>> {
    this._isOver = true;
    this._stop();
    return { done: true, value: undefined };
  }
}

/** The events after a position, in stored order, and the position up to which the application may
 * have got events before. From here on they count as handed out. */
export const nextEvents = (
  backend: Backend,
  after: number,
  limit: number,
): Promise<[Happening[], number]> =>
  backend.run("write", async (tx) => {
    const rows = await tx.all<StoredRow>("messages", {
      index: "position",
      from: after + 1,
      limit,
    });
    const others = structuredClone(
      await tx.all<Happening>("happenings", { from: after + 1, limit }),
    );
    const events: Happening[] = rows
      .map((row): Happening => ({ kind: "message", position: row.position!, row }))
      .concat(others)
      .sort((a, b) => a.position - b.position)
      .slice(0, limit);
    for (const event of events)
      if (event.kind === "changed" && event.about)
        event.after = (await tx.get<Row>("messages", event.about)) ?? null;
    const offered = (await fact<number>(tx, "offered")) ?? 0;
    const last = events.at(-1)?.position ?? 0;
    if (last > offered) putMeta(tx, { offered: last });
    return [events, offered];
  });
