/**
 * One connection per browser profile, for any number of tabs. The tab that holds a Web Lock leads;
 * when it ends, the lock passes to another. A leader that is about to be frozen releases the lock.
 * A leader that hangs loses it: a visible tab that asks and hears nothing for 5 s takes over. The
 * lock does not protect against two leaders: the leader's number in the store does (keeping.ts). A
 * page without TLS has no locks, so there only that number decides.
 */

import type { News } from "./news.ts";

const SILENCE_MS = 5000;
const PING_MS = 1000;
/** A leader whose timers did not run for this long is frozen or throttled. Messages of other tabs
 * still reach it, but it does not answer that it leads, so that a visible tab takes over. */
const ASLEEP_MS = 4000;

type Said =
  | { news: News[] }
  | { ask: number; from: string; do: string; args: unknown[] }
  | { to: string; answer: number; result?: unknown; error?: string }
  | { ping: true }
  | { lead: number };

export interface Role {
  /** This tab leads from now on; resolves with its number as the leader. */
  onLead(): Promise<number>;
  /** This tab does not lead any more. */
  onDeposed(): void;
  /** There is a new leader, this tab or another. The last one may not have told everything. */
  onLeader(): void;
  onNews(news: News): void;
  onCommand(name: string, args: unknown[]): Promise<unknown>;
}

/** A channel, and the news that other tabs have sent since it was opened. */
export interface Ear {
  channel: BroadcastChannel;
  heard: News[];
}

/** Listen before the store is read: otherwise news that come during the read would be lost. */
export const listen = (name: string): Ear => {
  const ear: Ear = { channel: new BroadcastChannel(name), heard: [] };
  ear.channel.onmessage = ({ data }) => ear.heard.push(...(data.news ?? []));
  return ear;
};

export class Tabs {
  isLeading = false;
  /** This tab leads, and has loaded what the last leader left: it carries out commands. */
  private _isReady = false;
  private _me = Math.random().toString(36).slice(2);
  /** The number of the leader, this tab or another. */
  private _number = 0;
  private _asked = 0;
  private _open = new Map<number, [Said, (answer: Said & { to: string }) => void]>();
  private _waiting = new AbortController();
  private _release: (() => void) | null = null;
  private _heardAtMs = Date.now();
  private _awakeAtMs = Date.now();
  private _pulse: ReturnType<typeof setInterval>;
  private _isOver = false;
  private _isFrozen = false;
  private _locks = navigator.locks as LockManager | undefined;
  private _news: News[] = [];

  constructor(
    private _channel: BroadcastChannel,
    private _role: Role,
  ) {
    this._channel.onmessage = ({ data }) => this._hear(data);
    this._pulse = setInterval(() => this._watch(), PING_MS);
    document.addEventListener("visibilitychange", this._looked);
    document.addEventListener("freeze", this._frozen);
    document.addEventListener("resume", this._resumed);
    this._stand();
    // Without locks, only silence tells that no tab leads; a leader would answer the ping below.
    if (!this._locks) this._heardAtMs -= SILENCE_MS - PING_MS;
    this._say({ ping: true });
  }

  // Who leads.

  /** Request the lock, and lead when it is granted. `how`: wait for it, or steal it. */
  private _campaign(how: LockOptions): void {
    this._locks!.request(this._channel.name, how, () => {
      if (this._isOver) return;
      this._lead();
      return new Promise<void>((resolve) => {
        this._release = resolve;
      });
    }).catch(() => {
      // The lock was stolen, or the request for it was aborted.
      if (this._isOver || how.signal?.aborted) return;
      this._deposed();
    });
  }

  private async _lead(): Promise<void> {
    this.isLeading = true;
    this._number = await this._role.onLead();
    if (!this.isLeading) return;
    this._isReady = true;
    this._say({ lead: this._number });
    for (const [said] of this._open.values()) this._hear(said);
    this._role.onLeader();
  }

  /** Another tab leads: stop leading, and wait for the lock again. */
  deposed(): void {
    this._release?.();
    this._deposed();
  }

  private _deposed(): void {
    if (!this.isLeading || this._isOver) return;
    this.isLeading = this._isReady = false;
    this._heardAtMs = Date.now();
    this._role.onDeposed();
    this._stand();
  }

  /** Wait for the lock, to lead when no other tab does. */
  private _stand(): void {
    if (!this._locks || this._isFrozen) return;
    this._waiting = new AbortController();
    this._campaign({ signal: this._waiting.signal });
  }

  /** Nothing runs in this tab from here on. Release the lock, and do not lead again: a transaction
   * that stays open in a frozen tab would block all others. */
  private _frozen = (): void => {
    this._isFrozen = true;
    this._waiting.abort();
    this.deposed();
  };

  private _resumed = (): void => {
    this._isFrozen = false;
    this._heardAtMs = Date.now();
    // There may have been a new leader meanwhile.
    this._role.onLeader();
    if (!this.isLeading) this._stand();
  };

  private _watch(): void {
    this._awakeAtMs = Date.now();
    if (this.isLeading || document.visibilityState !== "visible") {
      this._heardAtMs = Date.now();
      return;
    }
    if (Date.now() - this._heardAtMs < SILENCE_MS) {
      this._say({ ping: true });
    } else {
      this._heardAtMs = Date.now();
      this._waiting.abort();
      if (this._locks) this._campaign({ steal: true });
      else this._lead();
    }
  }

  /** A hidden tab sends no pings: when it is visible again, its wait for the leader starts anew. */
  private _looked = (): void => {
    this._heardAtMs = Date.now();
  };

  // Messages between tabs.

  /** Tell the other tabs; news of one turn of the event loop are sent together. */
  tell(news: News): void {
    if (!this._news.length)
      queueMicrotask(() => {
        this._say({ news: this._news });
        this._news = [];
      });
    this._news.push(news);
  }

  /** Send the leader a command. It is sent again to the next leader, if this one dies before it
   * answers. */
  command(name: string, args: unknown[]): Promise<unknown> {
    if (this._isReady) return this._role.onCommand(name, args);
    return new Promise((resolve, reject) => {
      const said = { ask: ++this._asked, from: this._me, do: name, args };
      this._open.set(this._asked, [
        said,
        (answer) => {
          if ("error" in answer && answer.error) reject(new Error(answer.error));
          else resolve("result" in answer ? answer.result : undefined);
        },
      ]);
      this._say(said);
    });
  }

  private _say(said: Said): void {
    if (!this._isOver) this._channel.postMessage(said);
  }

  private _hear(said: Said): void {
    if ("ask" in said) {
      if (this._isReady) this._obey(said);
      return;
    }
    if ("ping" in said) {
      if (this._isReady && Date.now() - this._awakeAtMs < ASLEEP_MS)
        this._say({ lead: this._number });
      return;
    }
    this._heardAtMs = Date.now();
    if ("lead" in said) {
      if (this._isReady && said.lead > this._number) this.deposed();
      if (!this.isLeading && said.lead > this._number) {
        // A new leader: it does not know the commands that the last one has not answered.
        this._number = said.lead;
        for (const [open] of this._open.values()) this._say(open);
        if (!this._isFrozen) this._role.onLeader();
      }
    } else if ("answer" in said) {
      const open = said.to === this._me && this._open.get(said.answer);
      if (open) {
        this._open.delete(said.answer);
        open[1](said);
      }
    } else if (!this.isLeading) {
      for (const news of said.news) this._role.onNews(news);
    }
  }

  private async _obey(said: Extract<Said, { ask: number }>): Promise<void> {
    const answer: Extract<Said, { answer: number }> = { to: said.from, answer: said.ask };
    try {
      answer.result = await this._role.onCommand(said.do, said.args);
    } catch (error) {
      answer.error = String(error);
    }
    if (said.from === this._me) this._hear(answer);
    else this._say(answer);
  }

  close(): void {
    this._isOver = true;
    this._waiting.abort();
    this._release?.();
    clearInterval(this._pulse);
    document.removeEventListener("visibilitychange", this._looked);
    document.removeEventListener("freeze", this._frozen);
    document.removeEventListener("resume", this._resumed);
    this._channel.close();
  }
}
