/** Blosc frames, whose headers are checked before memory is taken. */

import { registry } from "zarrita";

import { view } from "../checks.js";
import { ManifestError } from "../errors.js";

const HEADER_BYTES = 16;

/** Return the sizes that a frame declares: decoded, and compressed. */
export function bloscSizes(frame: Uint8Array, what: string): [number, number] {
  if (frame.length < HEADER_BYTES) throw new ManifestError(`${what} is too short for a blosc frame`);
  return [view(frame).getUint32(4, true), view(frame).getUint32(12, true)];
}

/**
 * Decode a frame.
 *
 * @param fits Whether the frame may have the decoded size that it declares.
 */
export async function decodeBlosc(frame: Uint8Array, what: string, fits: (declared: number) => boolean): Promise<Uint8Array> {
  const [declared, compressed] = bloscSizes(frame, what);
  if (!fits(declared)) throw new ManifestError(`${what} decodes to ${declared} bytes, which it may not`);
  if (compressed !== frame.length) throw new ManifestError(`${what} declares ${compressed} bytes and has ${frame.length}`);
  if (declared === 0) return new Uint8Array(0);
  const codec = (await registry.get("blosc")!()).fromConfig({ id: "blosc" }, { dataType: "uint8", shape: [declared], codecs: [], fillValue: 0 });
  let decoded: Uint8Array;
  try {
    decoded = (await codec.decode(frame)) as Uint8Array;
  } catch (cause) {
    throw new ManifestError(`${what} cannot be decoded`, {}, { cause });
  }
  if (decoded.length !== declared) throw new ManifestError(`${what} decodes to ${decoded.length} bytes instead of ${declared}`);
  return decoded;
}
