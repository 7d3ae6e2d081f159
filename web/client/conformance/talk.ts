/** A person in Node. A line is `{"id", "do", "args"}`, its answer has `id` and `result` or
 * `error`. */

import { createInterface } from "node:readline";
import { Client } from "../src/node.ts";
import { person } from "./person.ts";

const me = person((url, wish) => Client.open(url, wish)) as unknown as Record<
  string,
  (...args: unknown[]) => unknown
>;

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, args } = JSON.parse(line);
  let answer: object;
  try {
    answer = { id, result: (await me[name]!(...args)) ?? null };
  } catch (error) {
    answer = { id, error: String((error as Error).stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
