// Checks the sizes with gzip of the files that a page with the web chat or the widget loads.

import { gzipSync } from "node:zlib";
import { files } from "./build.mjs";

const BOUNDS = {
  app: ["the web chat's scripts, with all of the client", 56.8125 * 1024],
  style: ["the web chat's style", 5.125 * 1024],
  widget: ["the widget, with what the client loads at once", 33.875 * 1024],
  widgetConnected: ["the widget, with what the client connects with", 47 * 1024],
  widgetWhole: ["the widget, with all of the client", 52.0625 * 1024],
};

const { made, loads } = await files();
for (const [part, [label, bound]] of Object.entries(BOUNDS)) {
  const sizes = loads[part].map((name) => gzipSync(made.get(name), { level: 9 }).length);
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`${label}: ${bytes} bytes with gzip of at most ${bound}`);
  if (process.argv.includes("--parts")) {
    loads[part].forEach((name, at) => {
      console.log(`${String(sizes[at]).padStart(8)} ${name}`);
    });
  }
  if (bytes > bound) process.exitCode = 1;
}
