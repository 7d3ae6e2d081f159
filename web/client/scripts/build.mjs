// Builds dist/: index.js for browsers, node.js for Node, and their types.

import { execFileSync } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { browser, node, root } from "./targets.mjs";

const outdir = join(root, "dist");
rmSync(outdir, { recursive: true, force: true });
await build({ ...browser, outdir, sourcemap: true });
if (existsSync(join(root, "src/node.ts"))) await build({ ...node, outdir });

const typescript = dirname(createRequire(import.meta.url).resolve("typescript/package.json"));
execFileSync(
  process.execPath,
  [join(typescript, "bin/tsc"), "--project", join(root, "tsconfig.types.json")],
  { stdio: "inherit" },
);
