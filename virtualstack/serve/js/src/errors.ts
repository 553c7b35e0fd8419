/** Errors that this package raises on purpose. Their names are those of the Python package. */

/** What an error is about. */
export interface About {
  /** Path of the array, such as `/t`. */
  variable?: string;
  /** Position of the cell in the chunk grid of the vstack. */
  cell?: readonly number[];
  /** URL that was requested, or location of the source. */
  url?: string;
  /** HTTP status of the answer; 0 if there is none, or the browser hides it. */
  status?: number;
}

/** Base class of all errors about data. */
export class VStackError extends Error implements About {
  variable?: string;
  cell?: readonly number[];
  url?: string;
  status?: number;

  constructor(message: string, about: About = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    Object.assign(this, about);
  }

  /** Return the same error with the variable and the cell. Several cells may fail with one error, as they share a chunk. */
  at(variable: string, cell: readonly number[], url = this.url): VStackError {
    const place = ` (variable '${variable}', cell [${cell.join(", ")}]${url ? `, source '${url}'` : ""})`;
    const make = this.constructor as typeof VStackError;
    return new make(this.message + place, { variable, cell, url, status: this.status }, { cause: this });
  }
}

/** The store contradicts the specification: it is damaged, or a trap. */
export class ManifestError extends VStackError {}
/** Bytes could not be read. */
export class StorageError extends VStackError {}
/** Nothing is at this URL. */
export class SourceNotFoundError extends StorageError {}
/** The source changed after it was scanned. */
export class SourceChangedError extends StorageError {}
/** Stored bytes cannot be decoded. */
export class ChunkDecodeError extends StorageError {}
/** The store names a place that it may not make this program read. */
export class ForbiddenLocationError extends StorageError {}
/** Nobody knows the values of this chunk: it is ABSENT. */
export class AbsentChunkError extends StorageError {}
/** A data type or codec that this package does not read. */
export class UnsupportedFeatureError extends VStackError {}
