/** Connects the conformance kit with our client in a browser: each line is a call in the page. */

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
