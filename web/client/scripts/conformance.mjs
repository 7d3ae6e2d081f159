// Builds the drivers of the conformance kit, and people for other tests, in a page and in Node:
// `node scripts/conformance.mjs DIRECTORY`.

import { resolve } from "node:path";
import { build } from "esbuild";
import { browser, node } from "./targets.mjs";

const outdir = resolve(process.argv[2]);
await build({
  ...node,
  entryPoints: { node: "conformance/node.ts", talk: "conformance/talk.ts" },
  outdir,
  outExtension: { ".js": ".mjs" },
  // It runs outside of the workspace.
  packages: "bundle",
  banner: {
    js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
  },
});
// As it is shipped: minified, names inside mangled; for the kit in one file, for people in parts.
await build({
  ...browser,
  entryPoints: { page: "conformance/page.ts" },
  outdir,
  format: "iife",
  splitting: false,
});
await build({ ...browser, entryPoints: { tabs: "conformance/tabs.ts" }, outdir: `${outdir}/tabs` });
