import type { ComponentChildren } from 'preact';
import type { Listing } from '../lib/resource';
import { t } from '../i18n';
import { Loaded } from './states';

export interface Column<T> {
  label: string;
  cell(row: T): ComponentChildren;
  /** Numbers are set flush right. */
  number?: boolean;
  /** The column that names the row. */
  names?: boolean;
}

interface TableProps<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  rowKey(row: T): string;
}

/**
 * A table that turns into a list of labelled lines on narrow screens. The roles are written out because
 * changing `display` makes browsers forget that it is a table.
 */
export function Table<T>({ caption, columns, rows, rowKey }: TableProps<T>) {
  return (
    <table class="table" role="table">
      <caption class="visually-hidden">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th key={column.label} role="columnheader" scope="col" class={column.number ? 'number' : undefined}>
              {column.label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={rowKey(row)} role="row">
            {columns.map((column) => (
              <Cell key={column.label} column={column} row={row} />
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Cell<T>({ column, row }: { column: Column<T>; row: T }) {
  const shared = { 'data-label': column.label, class: column.number ? 'number' : undefined };
  const content = <div class="cell">{column.cell(row)}</div>;
  if (column.names) {
    return (
      <th role="rowheader" scope="row" {...shared}>
        {content}
      </th>
    );
  }
  return (
    <td role="cell" {...shared}>
      {content}
    </td>
  );
}

interface ListTableProps<T> extends Omit<TableProps<T>, 'rows'> {
  of: Listing<T>;
  empty: ComponentChildren;
}

/** A listing as a table, with what to say when it is empty and a button for its next page. */
export function ListTable<T>({ of, empty, ...table }: ListTableProps<T>) {
  return (
    <Loaded of={of}>
      {(rows) =>
        rows.length === 0 ? (
          empty
        ) : (
          <>
            <Table {...table} rows={rows} />
            {of.hasMore && (
              <button type="button" class="button" disabled={of.loadingMore} onClick={of.loadMore}>
                {of.loadingMore ? t('state.loading') : t('action.loadMore')}
              </button>
            )}
          </>
        )
      }
    </Loaded>
  );
}
