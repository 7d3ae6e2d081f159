/** The user of the conformance kit: carries out its lines with our client (docs/conformance.md). */

import { type Client, ClientError, type ClientOptions, type OpenOptions } from "../src/names.ts";

/** The factor for all waits of the client; the kit gets the same value. */
const TIME_SCALE = 0.2;
const SHOWN_MAX = 100_000;

const options: ClientOptions = {
  backoffMs: 1000 * TIME_SCALE,
  backoffMsMax: 30_000 * TIME_SCALE,
  ackMs: 5000 * TIME_SCALE,
  ackDirectMs: 250 * TIME_SCALE,
  ackIntervalMs: 50 * TIME_SCALE,
  gapGraceMs: 200 * TIME_SCALE,
};

export interface Line {
  id: number;
  do: string;
  url: string;
  store: string;
  chat_id: string;
  text: string;
  account: { username: string; password: string };
}

export interface Answer {
  id: number;
  result?: unknown;
  refused?: string;
  error?: string;
}

let client: Client;

/** `open` is `Client.open` of the platform; `store` makes a store name from the kit's directory. */
export const answer = async (
  line: Line,
  open: (url: string, wish: OpenOptions) => Promise<Client>,
  store: (directory: string) => string,
): Promise<Answer> => {
  const { id } = line;
  try {
    return { id, result: (await obey(line, open, store)) ?? null };
  } catch (error) {
    const isRefused = line.do === "send" && error instanceof ClientError;
    return isRefused
      ? { id, refused: String(error) }
      : { id, error: String((error as Error).stack) };
  }
};

const obey = async (
  line: Line,
  open: (url: string, wish: OpenOptions) => Promise<Client>,
  store: (directory: string) => string,
): Promise<unknown> => {
  switch (line.do) {
    case "start": {
      const { username, password } = line.account;
      const register = "never";
      const wish = { username, password, register, store: store(line.store), options } as const;
      client = await open(line.url, wish);
      return;
    }
    case "restart":
      client = await open(line.url, { store: store(line.store), options });
      return;
    case "stop":
      await client.close();
      return;
    case "send":
      await client.chat(line.chat_id).send(line.text);
      return;
    case "messages": {
      const messages = await client.chat(line.chat_id).messages({ limit: SHOWN_MAX });
      return messages.map(({ sequence, text }) => ({ sequence, text }));
    }
    case "ticks": {
      const chat = client.chat(line.chat_id);
      const stored = await chat.messages({ limit: SHOWN_MAX });
      return [...stored.filter((message) => message.isOwn), ...chat.pending()].map(
        ({ text, tick }) => ({ text, tick }),
      );
    }
    case "read":
      await client.chat(line.chat_id).read();
      return;
    case "state":
      return client.status.state;
    case "round_trip_ms":
      return client.roundTripMs;
    default:
      throw new Error(`${line.do} is nothing that can be done here`);
  }
};
