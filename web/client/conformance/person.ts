/** A person in a test, in a page or in Node: carries out commands, and records events. */

import type { Chat, Client, ClientEvent, OpenOptions } from "../src/names.ts";

let client: Client;
const events: string[] = [];
const faults: string[] = [];

const look = (event: ClientEvent): void => {
  if (event.type === "StatusMoved")
    events.push(`${event.status.state} ${event.status.reason ?? ""}`);
};

const chat = (id: string): Chat => client.chat(id);

/** Checks that ticks never go back, whichever tab has told them. */
const ticks = new Map<string, [number, number]>();
const watchTicks = (event: ClientEvent): void => {
  if (event.type !== "TicksMoved") return;
  const { othersDelivered, othersRead } = chat(event.chatId);
  const [delivered, read] = ticks.get(event.chatId) ?? [0, 0];
  if (othersDelivered < delivered || othersRead < read) faults.push("ticks went back");
  ticks.set(event.chatId, [othersDelivered, othersRead]);
};

type Open = (url: string, wish: OpenOptions) => Promise<Client>;

export const person = (open: Open) => ({
  async open(url: string, wish: OpenOptions): Promise<void> {
    client = await open(url, wish);
    client.on(look);
    client.on(watchTicks);
  },
  ready: () => client.ready(),
  direct: async (name: string): Promise<string> => (await client.direct(name)).chatId,
  send: async (id: string, ...texts: string[]): Promise<void> => {
    await Promise.all(texts.map((text) => chat(id).send(text)));
  },
  read: (id: string) => chat(id).read(),
  flush: () => client.flush(),
  close: () => client.close(),
  logout: () => client.logout(),
  texts: async (id: string): Promise<string[]> =>
    (await chat(id).messages({ limit: 1_000_000 })).map((message) => message.text),
  own: async (id: string): Promise<string[]> =>
    (await chat(id).messages({ limit: 1_000_000 })).flatMap((message) => message.tick ?? []),
  /** Messages that the server has lost, and only this device still has. */
  lost: async (id: string): Promise<string[]> => (await chat(id).lost()).map(({ text }) => text),
  state: () => ({
    status: client.status,
    isLeader: client.isLeader,
    isDurable: client.isDurable,
    pending: client.outbox().map(({ text, tick }) => `${text} ${tick}`),
    deviceId: client.deviceId,
    events,
    faults,
  }),
  numbers: (id: string) => {
    const { unread, lastSequence, lastRead, othersDelivered, othersRead, name } = chat(id);
    return { unread, lastSequence, lastRead, othersDelivered, othersRead, name };
  },
});
