// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// searchedBytes is the number of bytes of runs that a search reads at a time.
	searchedBytes = 1 << 20
	// maxSorted is the maximum number of matching entries in a partition that are read and
	// sorted to find the newest. If there are more, matches are frequent among the newest entries,
	// which are in order: scannedPerRun entries are scanned for each requested run. If these have
	// few matches, store.MaxCandidates entries are read and sorted.
	maxSorted     = 2000
	scannedPerRun = 8
)

// readUnindexed returns ended runs that are not indexed yet, of the project's newest. to, unless nil, is
// the lowest ID of their complete part.
func (s *Search) readUnindexed(ctx context.Context, before *uuid.UUID) (ids []uuid.UUID, to *uuid.UUID, err error) {
	waiting, leftOut, err := outbox.RunsToIndex.NewestIDs(ctx, s.db.Lists(), s.Project, store.MaxWaiting)
	if err != nil {
		return nil, nil, err
	}
	if leftOut > 0 { // the omitted runs were queued before they ended
		first := store.Stamp(uuid.UUID{}, leftOut+time.Millisecond.Microseconds(), 0)
		to = &first
	}
	for _, run := range waiting {
		at := store.TimeOf(run.ID).UnixMicro()
		if (before == nil || sqldb.CompareIDs(run.ID, *before) < 0) && at >= s.Window.From && at < s.Window.To {
			ids = append(ids, run.ID)
		}
	}
	return ids, to, nil
}

// readIndexed returns the newest runs that have the words by the index, at most so many. It reads
// partition by partition, newest first, so the intersection of two common words is computed per
// day. In a crowded partition some entries are scanned by key. to, unless nil, is the lowest ID of
// the complete part: a scan or the time ended there.
func (s *Search) readIndexed(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	parts, err := s.indexParts(ctx, before)
	if err != nil {
		return nil, nil, err
	}
	var crowded *uuid.UUID
	err = s.engine.ByWords(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		for _, part := range parts {
			some, many, err := s.matchesByTerms(ctx, q, part, before, most-len(ids))
			if err = s.db.MapNoRowsOrPart(err); errors.Is(err, store.ErrNotFound) {
				return nil // including all older ones
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
		if some, last, err = s.scanEntries(ctx, *crowded, before, scannedPerRun*(most-len(ids))); err == nil {
			if len(some) < most-len(ids) && (s.sparse == nil || *s.sparse != *crowded) {
				s.sparse, s.crowded = crowded, nil
			}
			return append(ids, some...), &last, nil
		}
	}
	if to == nil || context.Cause(ctx) != errSearchTimeout { //nolint:errorlint // never wrapped
		return nil, nil, err
	}
	return ids, to, nil
}

// indexParts returns the first IDs of the partitions to search, newest first: of days on which the
// project has history.
func (s *Search) indexParts(ctx context.Context, before *uuid.UUID) (parts []uuid.UUID, err error) {
	days, parted, err := s.db.Days(ctx, "run_words")
	if err != nil {
		return nil, err
	}
	if !parted {
		parts = []uuid.UUID{uuid.Nil}
	}
	own, _, err := s.db.ProjectDays(ctx, s.db.Lists(), "run_words", s.Project)
	if err != nil {
		return nil, err
	}
	for _, number := range days {
		if !slices.Contains(own, number) {
			continue
		}
		if from, to := number*sqldb.Day.Microseconds(), (number+1)*sqldb.Day.Microseconds(); from < s.Window.To && to > s.Window.From {
			parts = append(parts, store.Stamp(uuid.UUID{}, from, 0))
		}
	}
	return slices.DeleteFunc(parts, func(first uuid.UUID) bool { return before != nil && sqldb.CompareIDs(*before, first) <= 0 }), nil
}

// matchesByTerms returns the newest runs of a partition that have the words, at most so many, from the
// entries with these terms. crowded means that there are more entries than may be read and sorted.
func (s *Search) matchesByTerms(ctx context.Context, q sqldb.Queryer, part uuid.UUID, before *uuid.UUID, most int) (ids []uuid.UUID, crowded bool, err error) {
	if s.crowded != nil && *s.crowded == part {
		return nil, true, nil
	}
	sorted := maxSorted
	if s.sparse != nil && *s.sparse == part {
		sorted = store.MaxCandidates
	}
	l := sqldb.Args{Values: []any{s.Project}}
	entries, args := s.engine.WithTerms(s.searchTerms(), hashTerm(s.Project, moreTerm, ""), sorted+1, len(l.Values)+1)
	l.Values = append(l.Values, args...)
	err = sqldb.EachRow(ctx, q, func(row sqldb.Scanner) (err error) {
		var (
			n  int
			id *uuid.UUID
		)
		if err = row.Scan(&n, &id); id != nil {
			ids = append(ids, *id)
		}
		crowded = n > sorted
		return err
	}, s.db.InPart(`WITH f AS MATERIALIZED (`+entries+`) SELECT c.n, f.run_id FROM (SELECT count(*) AS n FROM f) c
		LEFT JOIN f ON f.project_id = $1`+s.windowCondition("f.run_id", before, &l)+sqldb.SinceCondition("f.run_id", "$1")+` ORDER BY f.run_id DESC LIMIT `+l.Add(most), part), l.Values...)
	if crowded {
		s.crowded = &part
	}
	return ids, crowded, err
}

// scanEntries returns the runs with the words among the newest entries of a partition, with the
// last entry; the first ID of the partition if there are none.
func (s *Search) scanEntries(ctx context.Context, part uuid.UUID, before *uuid.UUID, most int) (ids []uuid.UUID, last uuid.UUID, err error) {
	l := sqldb.Args{Values: []any{s.Project}}
	among := s.windowCondition("w.run_id", before, &l) + sqldb.SinceCondition("w.run_id", "$1") + ` ORDER BY w.run_id DESC LIMIT ` + l.Add(most)
	entries, args := s.engine.LookThrough(among, s.searchTerms(), hashTerm(s.Project, moreTerm, ""), len(l.Values)+1)
	l.Values = append(l.Values, args...)
	last = part
	_, err = sqldb.PastRows(ctx, s.db, s.db.Lists(), part, func(row sqldb.Scanner) (none struct{}, err error) {
		var has bool
		if err = row.Scan(&last, &has); has {
			ids = append(ids, last)
		}
		return none, err
	}, `WITH f AS MATERIALIZED (`+entries+`) SELECT f.run_id, f.has FROM f
		WHERE f.has OR f.run_id = (SELECT l.run_id FROM f l ORDER BY l.run_id LIMIT 1) ORDER BY f.run_id DESC`, l.Values...)
	return ids, last, err
}

// searchSize is the number of bytes of a run to read for a search, without its input.
type searchSize struct {
	id, input uuid.UUID
	bytes     int64
}

func scanSearchSize(row sqldb.Scanner) (s searchSize, err error) {
	err = row.Scan(&s.id, &s.input, &s.bytes)
	return s, err
}

// splitPieces splits runs in order, into at most so many per piece and at most searchedBytes, unless a
// single run has more.
func (s *Search) splitPieces(ctx context.Context, ids []uuid.UUID, atOnce int) (pieces [][]uuid.UUID, err error) {
	sizes, err := s.searchSizes(ctx, ids)
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

// searchSizes returns the bytes of runs to read for a search. Of large values only the beginning is read.
func (s *Search) searchSizes(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var (
		l    sqldb.Args
		q    = s.db.Lists()
		keys = sqldb.KeysFromIDs(s.Project, ids)
	)
	runs, err := sqldb.Collect(ctx, q, scanSearchSize, `SELECT h.id, h.input_id, 0 FROM open_runs h WHERE `+s.db.KeyCondition(&l, "h.id", keys), l.Values...)
	if err != nil {
		return nil, err
	}
	for _, same := range s.db.IDsByPart("ended_runs", ids) {
		l := sqldb.Args{Values: []any{store.MaxInlineText}}
		ended, err := sqldb.PastRows(ctx, s.db, q, same[0], scanSearchSize, `SELECT h.id, h.input_id, octet_length(h.error) + octet_length(h.context) +
			CASE WHEN h.output_blob_id IS NULL THEN octet_length(h.output) ELSE CAST($1 AS int) END FROM {ended_runs} h WHERE `+s.db.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(s.Project, same)), l.Values...)
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
	for _, same := range s.db.IDsByPart("inputs", given) {
		l := sqldb.Args{Values: []any{store.MaxInlineText}}
		found, err := sqldb.PastRows(ctx, s.db, q, same[0], scanSearchSize, `SELECT h.id, h.id, COALESCE(octet_length(h.data), CAST($1 AS int)) +
			COALESCE(octet_length(h.headers), 0) FROM {inputs} h WHERE `+s.db.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(s.Project, same)), l.Values...)
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
