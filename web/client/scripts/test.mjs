// Runs test/*.test.ts with node:test. `npm test -- replica` takes those whose name has that;
// `npm test -- --real` takes those of test/real, against the server at TIDEWIRE_URL.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { node, root } from "./targets.mjs";

const isReal = process.argv.includes("--real");
const wanted = process.argv.slice(2).filter((part) => part !== "--real");
const folder = join(root, isReal ? "test/real" : "test");
const files = readdirSync(folder)
  .filter((name) => /\.(test|e2e)\.ts$/.test(name))
  .filter((name) => !wanted.length || wanted.some((part) => name.includes(part)));

// Inside of the package, so that what is imported by name is found.
const outdir = mkdtempSync(join(root, ".test-"));
process.exitCode = 1;
try {
  await build({
    ...node,
    entryPoints: files.map((name) => join(folder, name)),
    outdir,
    outExtension: { ".js": ".mjs" },
    sourcemap: "inline",
  });
  const built = files.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
  const ended = spawnSync(
    process.execPath,
    ["--enable-source-maps", "--test", "--test-reporter=spec", "--test-timeout=60000", ...built],
    { stdio: "inherit", cwd: root },
  );
  process.exitCode = ended.status ?? 1;
} finally {
  rmSync(outdir, { recursive: true, force: true });
}
