/** A cache of promises with a limit of bytes; who asks while a value is read waits for the same read. */
export class Cache<T> {
  private readonly kept = new Map<string, Entry<T>>();
  private total = 0;

  constructor(private readonly limit: number) {}

  /**
   * Return the value of a key.
   *
   * @param make Make the value. Its signal tells it to stop, when all who wait for the value have given up.
   * @param size Bytes of the value.
   * @param signal Tells the caller to give up. Others who wait for the value still get it.
   */
  get(key: string, make: (signal: AbortSignal) => Promise<T>, size: (value: T) => number, signal?: AbortSignal): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    let entry = this.kept.get(key);
    if (entry) {
      this.kept.delete(key);
      this.kept.set(key, entry);
    } else entry = this.add(key, make, size);
    return this.wait(key, entry, signal);
  }

  private add(key: string, make: (signal: AbortSignal) => Promise<T>, size: (value: T) => number): Entry<T> {
    const controller = new AbortController();
    const entry = { value: make(controller.signal), size: 0, controller, nWaiting: 0 };
    this.kept.set(key, entry);
    entry.value.then(
      (value) => {
        if (this.kept.get(key) !== entry) return;
        entry.size = size(value);
        this.total += entry.size;
        for (const [old, other] of this.kept) {
          if (this.total <= this.limit) break;
          if (other.size === 0) continue;
          this.forget(old, other);
        }
      },
      () => this.kept.get(key) === entry && this.forget(key, entry),
    );
    return entry;
  }

  private forget(key: string, entry: Entry<T>): void {
    this.kept.delete(key);
    this.total -= entry.size;
  }

  private wait(key: string, entry: Entry<T>, signal?: AbortSignal): Promise<T> {
    entry.nWaiting += 1;
    if (!signal) return entry.value;
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        reject(signal.reason);
        entry.nWaiting -= 1;
        if (entry.nWaiting > 0) return;
        if (this.kept.get(key) === entry) this.forget(key, entry); // who asks next begins again
        entry.controller.abort();
      };
      signal.addEventListener("abort", giveUp, { once: true });
      entry.value.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
    });
  }
}

interface Entry<T> {
  value: Promise<T>;
  size: number;
  controller: AbortController;
  /** How many wait for the value, or have it; those who gave up do not count. */
  nWaiting: number;
}
