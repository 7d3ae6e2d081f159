/** The kit's lines as calls of a page, for our client in a browser. */

import { Client } from "../src/index.ts";
import { answer, type Line } from "./user.ts";

Object.assign(globalThis, {
  conformance: (line: Line) =>
    answer(
      line,
      (url, wish) => Client.open(url, wish),
      () => "conformance",
    ),
});
