/**
 * A store in one file, for Node: the memory, and a journal of what changes in it.
 *
 * A line is one group of transactions: what waited while the last line was being synced. It begins
 * with a checksum, so a line that was torn by a crash is known; only the last one can be, because
 * nothing is written behind a line that is not on the disk. When the journal is much longer than
 * what it tells, or a text was deleted, it is written anew beside itself and takes the old one's
 * place. One process has it at a time.
 */

import { createHash } from "node:crypto";
import { type FileHandle, open, readFile, realpath, rename, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import type { Mode } from "./backend.ts";
import { TABLES } from "./backend.ts";
import { StoreUnusable } from "./errors.ts";
import { type Change, MemoryBackend } from "./memory.ts";

const FORM = "tidewire-client 1";
/** The journal is written anew when it is so long, and four times as long as it need be. */
const LENGTH_MIN = 4 * 1024 * 1024;
const GROWTH = 4;

const sum = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 16);
const lineOf = (changes: readonly Change[]): string => {
  const text = JSON.stringify(changes);
  return `${sum(text)} ${text}\n`;
};

/** Held by this process alone, and let go of with it, however it ends. */
const lock = async (path: string): Promise<Server> => {
  // Through links: one file, one name.
  const place = await realpath(dirname(path)).catch(() => dirname(path));
  const name = `tidewire-${sum(join(place, basename(path)))}`;
  const address =
    process.platform === "linux"
      ? `\0${name}`
      : process.platform === "win32"
        ? `\\\\.\\pipe\\${name}`
        : join(tmpdir(), name);
  const server = createServer();
  await new Promise<void>((done, fail) => {
    server.once("error", fail);
    server.listen(address, done);
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    throw new StoreUnusable(
      `the store ${path} is in use by another process; ` +
        "end that one first, or give this one a store of its own",
    );
  });
  server.unref();
  return server;
};

export class FileBackend extends MemoryBackend {
  override readonly isDurable = true;
  private _file: FileHandle | undefined;
  private _length = 0;
  /** How long it was when it was last written anew. */
  private _least = 0;
  private _waiting: [Change[], isErasing: boolean, () => void, (error: unknown) => void][] = [];
  private _isWriting = false;
  private _fault: unknown;

  private constructor(
    private _path: string,
    private _lock: Server,
  ) {
    super();
  }

  /** Throws StoreUnusable. */
  static async open(name: string): Promise<FileBackend> {
    const path = resolve(name);
    const backend = new FileBackend(path, await lock(path));
    try {
      await backend._load();
    } catch (error) {
      await backend._file?.close();
      backend._lock.close();
      if (error instanceof StoreUnusable) throw error;
      throw new StoreUnusable(`cannot open the store ${path}: ${error}`);
    }
    return backend;
  }

  private async _load(): Promise<void> {
    // The tokens are in here: no other user may read it, from its first instant on.
    this._file = await open(this._path, "a+", 0o600);
    await this._file.chmod(0o600);
    const bytes = await readFile(this._path);
    this._length = bytes.length;
    const text = bytes.toString("utf8");
    if (!text.length) {
      await this._rewrite();
      return;
    }
    const lines = text.split("\n");
    if (lines[0] !== FORM)
      throw new StoreUnusable(
        /^tidewire-client /.test(text)
          ? `${this._path} was written by a newer Tidewire; install that one`
          : `${this._path} is a file of some other program; name another one`,
      );
    // What is behind the last end of a line was never done.
    const torn = lines.pop()!;
    let isTorn = torn !== "";
    for (let at = 1; at < lines.length; at++) {
      const line = lines[at]!;
      const changes = line.slice(17);
      if (sum(changes) !== line.slice(0, 16)) {
        if (at < lines.length - 1)
          throw new StoreUnusable(
            `${this._path} is damaged in line ${at + 1}: put a copy of it back, or delete it and ` +
              "log in again; what the server has comes back by itself",
          );
        isTorn = true;
        break;
      }
      for (const change of JSON.parse(changes) as Change[]) this.change(change);
    }
    if (isTorn) await this._rewrite();
  }

  protected override changed(changes: Change[], mode: Mode, isErasing: boolean): Promise<void> {
    const done = new Promise<void>((resolve, reject) => {
      this._waiting.push([changes, isErasing, resolve, reject]);
    });
    if (!this._isWriting) {
      this._isWriting = true;
      this._write();
    }
    // What nothing rests on need not be waited for; if it fails, the next one says so.
    if (mode === "strict") return done;
    done.catch(() => {});
    return Promise.resolve();
  }

  /** What waits becomes one line, with one sync for all of it. */
  private async _write(): Promise<void> {
    while (this._waiting.length) {
      const group = this._waiting;
      this._waiting = [];
      try {
        if (this._fault) throw this._fault;
        const isLong = this._length > LENGTH_MIN && this._length > GROWTH * this._least;
        if (isLong || group.some(([, isErasing]) => isErasing)) {
          // What was deleted stands in no line any more.
          await this._rewrite();
        } else {
          const line = lineOf(group.flatMap(([changes]) => changes));
          await this._file!.appendFile(line);
          await this._file!.datasync();
          this._length += line.length;
        }
        for (const [, , done] of group) done();
      } catch (error) {
        // It is not known what is on the disk: nothing more is written.
        this._fault ??= new StoreUnusable(`the store ${this._path} cannot be written: ${error}`);
        for (const [, , , failed] of group) failed(this._fault);
      }
    }
    this._isWriting = false;
  }

  /** All of it anew, in one line, beside the old one; then in its place. */
  private async _rewrite(): Promise<void> {
    const changes = TABLES.flatMap((name) =>
      this.table(name)
        .all({})
        .map((record): Change => [name, record]),
    );
    const text = `${FORM}\n${lineOf(changes)}`;
    const beside = `${this._path}.new`;
    const file = await open(beside, "w", 0o600);
    await file.writeFile(text);
    await file.sync();
    await rename(beside, this._path);
    const directory = await open(dirname(this._path), "r");
    // Not all systems sync a directory; those that do not keep renames by themselves.
    await directory.sync().catch(() => {});
    await directory.close();
    await this._file?.close();
    await file.close();
    this._file = await open(this._path, "a+", 0o600);
    this._length = this._least = text.length;
  }

  override async close(): Promise<void> {
    await super.close();
    while (this._isWriting) await new Promise((done) => setTimeout(done, 1));
    await this._file?.close();
    this._lock.close();
  }

  override async destroy(): Promise<void> {
    await this.close();
    await rm(this._path, { force: true });
  }
}
