// What a page loads of the client, against its bounds.

import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { browser } from "./targets.mjs";

/** With gzip: what every tab loads to show and to write, what the one that leads loads beside it to
 * connect and sync, and what comes on the first call of something. 15 KB was wanted for the first two
 * together: docs/decisions/0024-javascript-client.md says where the rest goes. */
const BOUNDS = { index: 12.1875 * 1024, more: 13.1875 * 1024, rare: 5.125 * 1024 };

const { outputFiles, metafile } = await build({
  ...browser,
  write: false,
  metafile: true,
  outdir: "dist",
});
const zipped = new Map();
for (const file of outputFiles) {
  const name = file.path.replace(/^.*\/dist\//, "");
  zipped.set(name, gzipSync(file.contents, { level: 9 }).length);
  if (process.argv.includes("--parts")) {
    console.log(`${name}: ${file.contents.length} bytes, ${zipped.get(name)} with gzip`);
    const { inputs } = metafile.outputs[`dist/${name}`];
    for (const [path, { bytesInOutput }] of Object.entries(inputs).sort(
      ([, a], [, b]) => b.bytesInOutput - a.bytesInOutput,
    ))
      console.log(`${String(bytesInOutput).padStart(7)} ${path}`);
  }
}

/** A file and what it imports before it runs. */
const closure = (name, found = new Set()) => {
  found.add(name);
  for (const { path, kind } of metafile.outputs[`dist/${name}`].imports)
    if (kind === "import-statement" && !found.has(path.slice(5))) closure(path.slice(5), found);
  return found;
};
const first = closure("index.js");
const part = (stem) => {
  const name = [...zipped.keys()].find((name) => name.startsWith(`${stem}-`));
  return [...closure(name)].filter((name) => !first.has(name));
};
const sum = (names) => [...names].reduce((bytes, name) => bytes + zipped.get(name), 0);
const loaded = { index: first, more: part("more"), rare: part("rare") };
for (const [what, names] of Object.entries(loaded)) {
  const bytes = sum(names);
  console.log(`@tidewire/client ${what}: ${bytes} bytes with gzip, at most ${BOUNDS[what]}`);
  if (bytes > BOUNDS[what]) process.exitCode = 1;
}
