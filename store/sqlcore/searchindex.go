// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// searchedBytes is how much of runs is read at a time to be searched.
	searchedBytes = 1 << 20
	// sortedAtOnce is how many entries of a part of the index are read and sorted for the newest of
	// them at most. Where more have the words, these are soon found among the newest of all entries,
	// which are in order: looksThrough of them are looked through for each run that is looked for.
	// Where they are not, store.MaxCandidates are read and sorted.
	sortedAtOnce = 2000
	looksThrough = 8
)

// waiting are ended runs that are not indexed yet, of the project's newest. to, unless nil, is the id down to
// which none is left out.
func (s *searching) waiting(ctx context.Context, before *uuid.UUID) (ids []uuid.UUID, to *uuid.UUID, err error) {
	waiting, leftOut, err := runsToIndex.newest(ctx, s.engine.Lists(), s.project, store.MaxWaiting)
	if err != nil {
		return nil, nil, err
	}
	if leftOut > 0 { // those that are left out were queued before they ended
		first := store.Stamp(uuid.UUID{}, leftOut+time.Millisecond.Microseconds(), 0)
		to = &first
	}
	for _, run := range waiting {
		at := store.TimeOf(run.ID).UnixMicro()
		if (before == nil || compareIDs(run.ID, *before) < 0) && at >= s.window.from && at < s.window.to {
			ids = append(ids, run.ID)
		}
	}
	return ids, to, nil
}

// indexed are the newest runs that have the words by the index, at most so many. It is asked day by
// day where history has parts, the newest first: what two common words have in common is found
// for each day by what the index has of both, whatever all the other days have of them. Of a day
// that is crowded some entries are looked through. to, unless nil, is the id down to which nothing is
// left out: so far it has come where these were looked through, or the time was over.
func (s *searching) indexed(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	parts, err := s.parts(ctx, before)
	if err != nil {
		return nil, nil, err
	}
	var crowded *uuid.UUID
	err = s.engine.ByWords(ctx, func(ctx context.Context, q Queryer) error {
		for _, part := range parts {
			some, many, err := s.asked(ctx, q, part, before, most-len(ids))
			if err = s.foundPart(err); errors.Is(err, store.ErrNotFound) {
				return nil // with all that are older
			}
			if err != nil {
				return err
			}
			if many {
				crowded = &part
				return nil
			}
			if ids = append(ids, some...); len(ids) >= most {
				return nil
			}
			to = &part
		}
		return nil
	})
	if err == nil && crowded == nil {
		return ids, nil, nil
	}
	if err == nil {
		var (
			some []uuid.UUID
			last uuid.UUID
		)
		if some, last, err = s.lookedThrough(ctx, *crowded, before, looksThrough*(most-len(ids))); err == nil {
			if len(some) < most-len(ids) && (s.sparse == nil || *s.sparse != *crowded) {
				s.sparse, s.crowded = crowded, nil
			}
			return append(ids, some...), &last, nil
		}
	}
	if to == nil || context.Cause(ctx) != errOver { //nolint:errorlint // nobody wraps it
		return nil, nil, err
	}
	return ids, to, nil
}

// parts are the first ids of those parts of the index that are searched, the newest first.
func (s *searching) parts(ctx context.Context, before *uuid.UUID) (parts []uuid.UUID, err error) {
	days, parted, err := s.engine.Days(ctx, "run_words")
	if err != nil {
		return nil, err
	}
	if !parted {
		parts = []uuid.UUID{uuid.Nil}
	}
	for _, number := range days {
		if from, to := number*day.Microseconds(), (number+1)*day.Microseconds(); from < s.window.to && to > s.window.from {
			parts = append(parts, store.Stamp(uuid.UUID{}, from, 0))
		}
	}
	return slices.DeleteFunc(parts, func(first uuid.UUID) bool { return before != nil && compareIDs(*before, first) <= 0 }), nil
}

// asked are the newest runs of a part of the index that have the words, at most so many, by which
// entries these have. It is crowded where there are more than are read and sorted for that.
func (s *searching) asked(ctx context.Context, q Queryer, part uuid.UUID, before *uuid.UUID, most int) (ids []uuid.UUID, crowded bool, err error) {
	if s.crowded != nil && *s.crowded == part {
		return nil, true, nil
	}
	sorted := sortedAtOnce
	if s.sparse != nil && *s.sparse == part {
		sorted = store.MaxCandidates
	}
	l := list{args: []any{s.project}}
	entries, args := s.engine.WithTerms(s.terms(), termOf(s.project, moreTerm, ""), sorted+1, len(l.args)+1)
	l.args = append(l.args, args...)
	_, err = collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var (
			n  int
			id *uuid.UUID
		)
		if err = row.Scan(&n, &id); id != nil {
			ids = append(ids, *id)
		}
		crowded = n > sorted
		return none, err
	}, s.InPart(`WITH f AS MATERIALIZED (`+entries+`) SELECT c.n, f.run_id FROM (SELECT count(*) AS n FROM f) c
		LEFT JOIN f ON f.project_id = $1`+s.within("f.run_id", before, &l)+since("f.run_id", "$1")+` ORDER BY f.run_id DESC LIMIT `+l.add(most), part), l.args...)
	if crowded {
		s.crowded = &part
	}
	return ids, crowded, err
}

// lookedThrough are the runs that have the words among so many of the newest entries of a part of the
// index, with the last one of these: where there are none, the first id of the part.
func (s *searching) lookedThrough(ctx context.Context, part uuid.UUID, before *uuid.UUID, most int) (ids []uuid.UUID, last uuid.UUID, err error) {
	l := list{args: []any{s.project}}
	among := s.within("w.run_id", before, &l) + since("w.run_id", "$1") + ` ORDER BY w.run_id DESC LIMIT ` + l.add(most)
	entries, args := s.engine.LookThrough(among, s.terms(), termOf(s.project, moreTerm, ""), len(l.args)+1)
	l.args = append(l.args, args...)
	last = part
	_, err = pastRows(ctx, s.Core, s.engine.Lists(), part, func(row scanner) (none struct{}, err error) {
		var has bool
		if err = row.Scan(&last, &has); has {
			ids = append(ids, last)
		}
		return none, err
	}, `WITH f AS MATERIALIZED (`+entries+`) SELECT f.run_id, f.has FROM f
		WHERE f.has OR f.run_id = (SELECT l.run_id FROM f l ORDER BY l.run_id LIMIT 1) ORDER BY f.run_id DESC`, l.args...)
	return ids, last, err
}

// searchSize is how many bytes of a run are read to be searched, but for its input.
type searchSize struct {
	id, input uuid.UUID
	bytes     int64
}

func scanSearchSize(row scanner) (s searchSize, err error) {
	err = row.Scan(&s.id, &s.input, &s.bytes)
	return s, err
}

// pieces are runs in their order, at most so many at a time, and so few that what of them is searched
// has searchedBytes at most, unless one alone has more.
func (s *searching) pieces(ctx context.Context, ids []uuid.UUID, atOnce int) (pieces [][]uuid.UUID, err error) {
	sizes, err := s.sizes(ctx, ids)
	if err != nil {
		return nil, err
	}
	var (
		piece []uuid.UUID
		bytes int64
	)
	for _, id := range ids {
		if size := sizes[id]; len(piece) == atOnce || len(piece) > 0 && bytes+size > searchedBytes {
			pieces, piece, bytes = append(pieces, piece), nil, 0
		}
		piece, bytes = append(piece, id), bytes+sizes[id]
	}
	if len(piece) > 0 {
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// sizes are how many bytes of runs are read to be searched. Of what is large the beginning is.
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
		ended, err := pastRows(ctx, s.Core, q, same[0], scanSearchSize, `SELECT h.id, h.input_id, octet_length(h.error) +
			CASE WHEN h.output_blob_id IS NULL THEN octet_length(h.output) ELSE CAST($1 AS int) END FROM {ended_runs} h WHERE `+s.keys(&l, "h.id", keysOf(s.project, same)), l.args...)
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
		found, err := pastRows(ctx, s.Core, q, same[0], scanSearchSize, `SELECT h.id, h.id, COALESCE(octet_length(h.data), CAST($1 AS int)) +
			COALESCE(octet_length(h.headers), 0) FROM {inputs} h WHERE `+s.keys(&l, "h.id", keysOf(s.project, same)), l.args...)
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
