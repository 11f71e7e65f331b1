// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// searchedBytes is how much of runs is read at a time to be searched.
const searchedBytes = 1 << 20

// waiting are ended runs that are not indexed yet.
func (s *searching) waiting(ctx context.Context, before *uuid.UUID) (ids []uuid.UUID, err error) {
	rows, err := collect(ctx, s.engine.Lists(), scanEndedIDs, `SELECT project_id, run_ids FROM outbox_words WHERE project_id = $1`, s.project)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		for _, run := range row {
			at := store.TimeOf(run.ID).UnixMicro()
			if (before == nil || compareIDs(run.ID, *before) < 0) && at >= s.window.from && at < s.window.to {
				ids = append(ids, run.ID)
			}
		}
	}
	return ids, nil
}

// indexed are the newest runs that have the words by the index, at most so many. It is asked day by
// day where history has parts, the newest first: what two common words have in common is found
// for each day by what the index has of both, whatever all the other days have of them. Where
// the time is over in between, to is the id down to which nothing is left out.
func (s *searching) indexed(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	days, parted, err := s.engine.Days(ctx, "run_words")
	if err != nil {
		return nil, nil, err
	}
	if !parted {
		days = []int64{0}
	}
	err = s.engine.ByWords(ctx, func(ctx context.Context, q Queryer) error {
		for _, number := range days {
			first := store.Stamp(uuid.UUID{}, number*day.Microseconds(), 0)
			if parted && !s.looksInto(number, before) {
				continue
			}
			some, err := s.ofDay(ctx, q, first, before, most-len(ids))
			if err = s.foundPart(err); errors.Is(err, store.ErrNotFound) {
				return nil // with all that are older
			}
			if err != nil {
				return err
			}
			if ids = append(ids, some...); len(ids) >= most {
				return nil
			}
			to = &first
		}
		return nil
	})
	if err == nil || to == nil || context.Cause(ctx) != errOver { //nolint:errorlint // nobody wraps it
		return ids, nil, err
	}
	return ids, to, nil
}

// looksInto says whether runs of a day are searched.
func (s *searching) looksInto(number int64, before *uuid.UUID) bool {
	from, to := number*day.Microseconds(), (number+1)*day.Microseconds()
	return from < s.window.to && to > s.window.from && (before == nil || store.TimeOf(*before).UnixMicro() >= from)
}

// ofDay are the newest runs of a part of the index that have the words, at most so many.
func (s *searching) ofDay(ctx context.Context, q Queryer, part uuid.UUID, before *uuid.UUID, most int) ([]uuid.UUID, error) {
	l := list{args: []any{s.project}}
	entries, args := s.engine.WithTerms(s.terms(), termOf(s.project, moreTerm, ""), len(l.args)+1)
	l.args = append(l.args, args...)
	return collect(ctx, q, scanID, s.InPart(`SELECT f.run_id FROM `+entries+` f WHERE f.project_id = $1`+s.within("f.run_id", before, &l)+since("f.run_id", "$1")+`
		ORDER BY f.run_id DESC LIMIT `+l.add(most), part), l.args...)
}

// searchSize is how many bytes of a run are searched, but for its input.
type searchSize struct {
	id, input uuid.UUID
	bytes     int64
}

func scanSearchSize(row scanner) (s searchSize, err error) {
	err = row.Scan(&s.id, &s.input, &s.bytes)
	return s, err
}

// pieces are runs in their order, so few at a time that what of them is searched has searchedBytes
// at most, unless one alone has more.
func (s *searching) pieces(ctx context.Context, ids []uuid.UUID) (pieces [][]uuid.UUID, err error) {
	sizes, err := s.sizes(ctx, ids)
	if err != nil {
		return nil, err
	}
	var (
		piece []uuid.UUID
		bytes int64
	)
	for _, id := range ids {
		if size := sizes[id]; len(piece) == searchedAtOnce || len(piece) > 0 && bytes+size > searchedBytes {
			pieces, piece, bytes = append(pieces, piece), nil, 0
		}
		piece, bytes = append(piece, id), bytes+sizes[id]
	}
	if len(piece) > 0 {
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// sizes are how many bytes of runs are searched. Of what is large the beginning is.
func (s *searching) sizes(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var (
		l    list
		q    = s.engine.Lists()
		keys = keysOf(s.project, ids)
	)
	runs, err := collect(ctx, q, scanSearchSize, `SELECT h.id, h.input_id, 0 FROM open_runs h WHERE `+s.keys(&l, "h.id", keys), l.args...)
	if err != nil {
		return nil, err
	}
	for _, same := range s.ByPart("ended_runs", ids) {
		l := list{args: []any{store.MaxInlineText}}
		ended, err := pastRows(ctx, s.Core, q, same[0], scanSearchSize, `SELECT h.id, h.input_id, CASE WHEN h.output_blob_id IS NULL THEN octet_length(h.output) ELSE CAST($1 AS int) END
			FROM {ended_runs} h WHERE `+s.keys(&l, "h.id", keysOf(s.project, same)), l.args...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, ended...)
	}
	given := make([]uuid.UUID, len(runs))
	for i, run := range runs {
		given[i] = run.input
	}
	inputs := map[uuid.UUID]int64{}
	for _, same := range s.ByPart("inputs", given) {
		l := list{args: []any{store.MaxInlineText}}
		found, err := pastRows(ctx, s.Core, q, same[0], scanSearchSize, `SELECT h.id, h.id, COALESCE(octet_length(h.data), CAST($1 AS int)) FROM {inputs} h WHERE `+s.keys(&l, "h.id", keysOf(s.project, same)), l.args...)
		if err != nil {
			return nil, err
		}
		for _, input := range found {
			inputs[input.id] = input.bytes
		}
	}
	out := make(map[uuid.UUID]int64, len(runs))
	for _, run := range runs {
		out[run.id] = run.bytes + inputs[run.input]
	}
	return out, nil
}
