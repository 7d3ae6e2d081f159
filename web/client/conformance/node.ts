/** Connects the conformance kit with our client in Node, by lines on stdin and stdout. */

import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "../src/node.ts";
import { answer } from "./user.ts";

for await (const line of createInterface({ input: process.stdin })) {
  const said = await answer(
    JSON.parse(line),
    (url, wish) => Client.open(url, wish),
    (directory) => join(directory, "client.tidewire"),
  );
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
