// Runs the unit tests of a workspace (`test/*.test.ts` of the current directory) with node:test.
// `npm test -- rows` runs those whose file name contains "rows".

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { bundle } from "./targets.mjs";

const here = process.cwd();
const wanted = process.argv.slice(2);
const files = readdirSync(join(here, "test"))
  .filter((name) => name.endsWith(".test.ts"))
  .filter((name) => !wanted.length || wanted.some((part) => name.includes(part)));

// Inside the workspace, so that imports by package name are found.
const outdir = mkdtempSync(join(here, ".test-"));
process.exitCode = 1;
try {
  await build({
    ...bundle,
    absWorkingDir: here,
    entryPoints: files.map((name) => join(here, "test", name)),
    alias: { "@tidewire/client": join(here, "../client/src/index.ts") },
    outdir,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    target: "node20",
    minify: false,
    mangleProps: undefined,
    sourcemap: "inline",
  });
  const built = files.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
  const ended = spawnSync(
    process.execPath,
    ["--enable-source-maps", "--test", "--test-reporter=spec", ...built],
    { stdio: "inherit", cwd: here },
  );
  process.exitCode = ended.status ?? 1;
} finally {
  rmSync(outdir, { recursive: true, force: true });
}
