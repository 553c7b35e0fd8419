/** A cache of promises with a limit of bytes; who asks while a value is read waits for the same read. */
export class Cache<T> {
  private readonly kept = new Map<string, { value: Promise<T>; size: number }>();
  private total = 0;

  constructor(private readonly limit: number) {}

  get(key: string, make: () => Promise<T>, size: (value: T) => number): Promise<T> {
    const found = this.kept.get(key);
    if (found) {
      this.kept.delete(key);
      this.kept.set(key, found);
      return found.value;
    }
    const entry = { value: make(), size: 0 };
    this.kept.set(key, entry);
    entry.value.then(
      (value) => {
        if (this.kept.get(key) !== entry) return;
        entry.size = size(value);
        this.total += entry.size;
        for (const [old, { size }] of this.kept) {
          if (this.total <= this.limit) break;
          if (size === 0) continue;
          this.kept.delete(old);
          this.total -= size;
        }
      },
      () => this.kept.get(key) === entry && this.kept.delete(key),
    );
    return entry.value;
  }
}
