// Package clients runs go-redis, unmodified, against the server. `run` starts the server and sets
// its port.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// connect makes a client, which is closed at the end of the test.
func connect(t *testing.T, protocol int, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{
		Addr:     "127.0.0.1:" + os.Getenv("QUINTET_PORT"),
		Protocol: protocol,
	}
	for _, change := range change {
		change(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// each runs a test with both protocols, each time with a server without keys.
func each(t *testing.T, test func(t *testing.T, ctx context.Context, client *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("resp%d", protocol), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			client := connect(t, protocol)
			succeeds(t, client.FlushAll(ctx).Err())
			test(t, ctx, client)
		})
	}
}

func succeeds(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal takes the result of a command and the value that it should be.
func equal[T any](t *testing.T, result interface{ Result() (T, error) }, expected T) {
	t.Helper()
	found, err := result.Result()
	succeeds(t, err)
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("%v: found %v, expected %v", result, found, expected)
	}
}

// fails takes a command that must fail with an error that has a text.
func fails(t *testing.T, command redis.Cmder, text string) {
	t.Helper()
	if err := command.Err(); err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v: the error is %v, not %q", command, err, text)
	}
}

// isNil takes a command whose reply must be null.
func isNil(t *testing.T, command redis.Cmder) {
	t.Helper()
	if !errors.Is(command.Err(), redis.Nil) {
		t.Fatalf("%v is not null", command)
	}
}

func TestStrings(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		equal(t, c.Set(ctx, "a", "1", 0), "OK")
		equal(t, c.Get(ctx, "a"), "1")
		isNil(t, c.Get(ctx, "missing"))
		equal(t, c.SetNX(ctx, "a", "2", 0), false)
		equal(t, c.SetXX(ctx, "a", "2", time.Minute), true)
		equal(t, c.GetSet(ctx, "a", "3"), "2")
		equal(t, c.MSet(ctx, "b", "x", "c", "y"), "OK")
		equal(t, c.MGet(ctx, "b", "missing", "c"), []any{"x", nil, "y"})
		equal(t, c.IncrBy(ctx, "a", 39), 42)
		equal(t, c.IncrByFloat(ctx, "f", 0.5), 0.5)
		equal(t, c.Append(ctx, "b", "yz"), 3)
		equal(t, c.GetRange(ctx, "b", 1, -1), "yz")
		equal(t, c.GetDel(ctx, "b"), "xyz")
		equal(t, c.Expire(ctx, "c", time.Minute), true)
		equal(t, c.Persist(ctx, "c"), true)
		equal(t, c.TTL(ctx, "c"), -1)
		equal(t, c.SetBit(ctx, "bits", 100, 1), 0)
		equal(t, c.BitCount(ctx, "bits", nil), 1)
		equal(t, c.BitPos(ctx, "bits", 1), 100)
		equal(t, c.BitField(ctx, "n", "SET", "u8", "0", 255, "GET", "u4", "4"), []int64{0, 15})
		equal(t, c.Exists(ctx, "a", "b", "c"), 2)
		equal(t, c.Type(ctx, "a"), "string")
		value := strings.Repeat("\x00\r\n\xff", 100_000)
		equal(t, c.Set(ctx, "\r\n", value, 0), "OK")
		equal(t, c.Get(ctx, "\r\n"), value)
	})
}

func TestLists(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		equal(t, c.RPush(ctx, "l", "a", "b", "c"), 3)
		equal(t, c.LPush(ctx, "l", "z"), 4)
		equal(t, c.LRange(ctx, "l", 0, -1), []string{"z", "a", "b", "c"})
		equal(t, c.LInsertBefore(ctx, "l", "b", "x"), 5)
		equal(t, c.LPos(ctx, "l", "x", redis.LPosArgs{}), 2)
		equal(t, c.LRem(ctx, "l", 0, "x"), 1)
		equal(t, c.LMove(ctx, "l", "m", "RIGHT", "LEFT"), "c")
		equal(t, c.LPopCount(ctx, "l", 2), []string{"z", "a"})
		equal(t, c.RPop(ctx, "l"), "b")
		isNil(t, c.RPop(ctx, "l"))
		key, values, err := c.LMPop(ctx, "left", 1, "l", "m").Result()
		succeeds(t, err)
		if key != "m" || !slices.Equal(values, []string{"c"}) {
			t.Fatal(key, values)
		}
		equal(t, c.RPush(ctx, "numbers", 3, 1, 2), 3)
		equal(t, c.Sort(ctx, "numbers", &redis.Sort{Order: "DESC"}), []string{"3", "2", "1"})
	})
}

func TestHashesAndSets(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		equal(t, c.HSet(ctx, "h", "a", 1, "b", 2), 2)
		equal(t, c.HGetAll(ctx, "h"), map[string]string{"a": "1", "b": "2"})
		equal(t, c.HGetAll(ctx, "missing"), map[string]string{})
		equal(t, c.HMGet(ctx, "h", "a", "missing"), []any{"1", nil})
		equal(t, c.HIncrBy(ctx, "h", "a", 4), 5)
		equal(t, c.HIncrByFloat(ctx, "h", "b", 0.5), 2.5)
		equal(t, c.HExists(ctx, "h", "c"), false)
		equal(t, c.HDel(ctx, "h", "a", "c"), 1)
		equal(t, c.HKeys(ctx, "h"), []string{"b"})
		equal(t, c.HRandFieldWithValues(ctx, "h", 1), []redis.KeyValue{{Key: "b", Value: "2.5"}})

		equal(t, c.SAdd(ctx, "s", "a", "b", "c"), 3)
		equal(t, c.SAdd(ctx, "t", "b", "c", "d"), 3)
		equal(t, c.SMembersMap(ctx, "s"), map[string]struct{}{"a": {}, "b": {}, "c": {}})
		equal(t, c.SInterStore(ctx, "both", "s", "t"), 2)
		equal(t, c.SMIsMember(ctx, "both", "b", "a"), []bool{true, false})
		equal(t, c.SDiff(ctx, "s", "t"), []string{"a"})
		equal(t, c.SInterCard(ctx, 1, "s", "t"), 1)
		equal(t, c.SMove(ctx, "s", "t", "a"), true)
		equal(t, c.SCard(ctx, "t"), 4)
		popped, err := c.SPopN(ctx, "both", 2).Result()
		succeeds(t, err)
		slices.Sort(popped)
		if !slices.Equal(popped, []string{"b", "c"}) {
			t.Fatal(popped)
		}
		equal(t, c.Exists(ctx, "both"), 0)
	})
}

func TestSortedSets(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		a, b := redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}
		equal(t, c.ZAdd(ctx, "z", a, b), 2)
		equal(t, c.ZAddArgs(ctx, "z", redis.ZAddArgs{GT: true, Ch: true, Members: []redis.Z{b}}), 0)
		equal(t, c.ZScore(ctx, "z", "b"), 2.5)
		equal(t, c.ZRank(ctx, "z", "b"), 1)
		rank, err := c.ZRankWithScore(ctx, "z", "b").Result()
		// `ZRANK WITHSCORE` is of Redis 7.2.
		if err == nil && (rank.Rank != 1 || rank.Score != 2.5) {
			t.Fatal(rank)
		}
		equal(t, c.ZRangeWithScores(ctx, "z", 0, -1), []redis.Z{a, b})
		equal(t, c.ZRevRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "-inf", Max: "(2.5"}), []string{"a"})
		equal(t, c.ZIncrBy(ctx, "z", 1.5, "a"), 2.5)
		equal(t, c.ZRangeByLex(ctx, "z", &redis.ZRangeBy{Min: "-", Max: "[a"}), []string{"a"})
		equal(t, c.ZUnionStore(ctx, "u", &redis.ZStore{Keys: []string{"z"}, Weights: []float64{2}}), 2)
		equal(t, c.ZInterWithScores(ctx, &redis.ZStore{Keys: []string{"z", "u"}}),
			[]redis.Z{{Score: 7.5, Member: "a"}, {Score: 7.5, Member: "b"}})
		equal(t, c.ZPopMax(ctx, "u"), []redis.Z{{Score: 5, Member: "b"}})
		equal(t, c.ZRemRangeByRank(ctx, "u", 0, -1), 1)
		equal(t, c.ZCard(ctx, "z"), 2)

		equal(t, c.PFAdd(ctx, "visitors", 1, 2, 3), 1)
		equal(t, c.PFCount(ctx, "visitors"), 3)
		palermo := &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}
		catania := &redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}
		equal(t, c.GeoAdd(ctx, "Sicily", palermo, catania), 2)
		equal(t, c.GeoSearch(ctx, "Sicily", &redis.GeoSearchQuery{
			Longitude: 15, Latitude: 37, Radius: 100, RadiusUnit: "km"}), []string{"Catania"})
		equal(t, c.GeoHash(ctx, "Sicily", "Palermo"), []string{"sqc8b49rny0"})
	})
}

func TestStreamsWithGroups(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		add := func(id string, values ...any) {
			equal(t, c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: id, Values: values}), id)
		}
		add("1-1", "n", "1")
		add("1-2", "n", "2", "m", "x")
		first := redis.XMessage{ID: "1-1", Values: map[string]any{"n": "1"}}
		second := redis.XMessage{ID: "1-2", Values: map[string]any{"n": "2", "m": "x"}}
		equal(t, c.XRange(ctx, "s", "-", "+"), []redis.XMessage{first, second})
		equal(t, c.XRevRangeN(ctx, "s", "+", "-", 1), []redis.XMessage{second})
		equal(t, c.XGroupCreate(ctx, "s", "g", "0"), "OK")
		fails(t, c.XGroupCreate(ctx, "s", "g", "0"), "BUSYGROUP")
		read := &redis.XReadGroupArgs{Group: "g", Consumer: "ann", Streams: []string{"s", ">"}, Block: -1}
		equal(t, c.XReadGroup(ctx, read), []redis.XStream{{Stream: "s", Messages: []redis.XMessage{first, second}}})
		isNil(t, c.XReadGroup(ctx, read))
		equal(t, c.XAck(ctx, "s", "g", "1-1"), 1)
		equal(t, c.XPending(ctx, "s", "g"), &redis.XPending{
			Count: 1, Lower: "1-2", Higher: "1-2", Consumers: map[string]int64{"ann": 1}})
		claim := &redis.XClaimArgs{Stream: "s", Group: "g", Consumer: "bob", Messages: []string{"1-2"}}
		equal(t, c.XClaim(ctx, claim), []redis.XMessage{second})
		messages, start, err := c.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: "s", Group: "g", Consumer: "ann", Start: "0"}).Result()
		succeeds(t, err)
		if start != "0-0" || !reflect.DeepEqual(messages, []redis.XMessage{second}) {
			t.Fatal(start, messages)
		}
		groups, err := c.XInfoGroups(ctx, "s").Result()
		succeeds(t, err)
		if len(groups) != 1 || groups[0].Pending != 1 || groups[0].LastDeliveredID != "1-2" {
			t.Fatal(groups)
		}
		info, err := c.XInfoStream(ctx, "s").Result()
		succeeds(t, err)
		if info.Length != 2 || info.FirstEntry.ID != "1-1" {
			t.Fatal(info)
		}
		equal(t, c.XTrimMaxLen(ctx, "s", 1), 1)
		equal(t, c.XDel(ctx, "s", "1-2"), 1)
		equal(t, c.XGroupDestroy(ctx, "s", "g"), 1)
		fails(t, c.XReadGroup(ctx, read), "NOGROUP")
	})
}

func TestPipelinesAndTransactions(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		replies, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for number := range 2000 {
				pipe.Set(ctx, fmt.Sprint("k", number), number, 0)
				pipe.Get(ctx, fmt.Sprint("k", number))
			}
			return nil
		})
		succeeds(t, err)
		for number := range 2000 {
			equal(t, replies[2*number+1].(*redis.StringCmd), fmt.Sprint(number))
		}
		replies, err = c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "s", "x", 0)
			pipe.LPush(ctx, "s", "y")
			pipe.Get(ctx, "s")
			return nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Fatal(err)
		}
		equal(t, replies[2].(*redis.StringCmd), "x")

		// Increments by WATCH: each is counted once.
		increment := func(tx *redis.Tx) error {
			number, err := tx.Get(ctx, "n").Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "n", number+1, 0)
				return nil
			})
			return err
		}
		var group sync.WaitGroup
		failures := make(chan error, 4)
		for range 4 {
			group.Go(func() {
				for range 20 {
					err := error(redis.TxFailedErr)
					for errors.Is(err, redis.TxFailedErr) {
						err = c.Watch(ctx, increment, "n")
					}
					if err != nil {
						failures <- err
						return
					}
				}
			})
		}
		group.Wait()
		close(failures)
		for err := range failures {
			t.Fatal(err)
		}
		equal(t, c.Get(ctx, "n"), "80")
	})
}

func TestPublishAndSubscribe(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		reader := c.Subscribe(ctx, "news")
		defer func() { _ = reader.Close() }()
		succeeds(t, reader.PSubscribe(ctx, "n*"))
		for range 2 {
			_, err := reader.Receive(ctx)
			succeeds(t, err)
		}
		equal(t, c.Publish(ctx, "news", "hello"), 2)
		for _, pattern := range []string{"", "n*"} {
			message, err := reader.ReceiveMessage(ctx)
			succeeds(t, err)
			if message.Channel != "news" || message.Payload != "hello" || message.Pattern != pattern {
				t.Fatal(message)
			}
		}
		succeeds(t, reader.Ping(ctx, "here"))
		pong, err := reader.Receive(ctx)
		succeeds(t, err)
		if pong.(*redis.Pong).Payload != "here" {
			t.Fatal(pong)
		}
		equal(t, c.PubSubChannels(ctx, "*"), []string{"news"})
		equal(t, c.PubSubNumSub(ctx, "news", "x"), map[string]int64{"news": 1, "x": 0})
	})
}

// blocked waits until a client waits for a key.
func blocked(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	for {
		info, err := c.Info(ctx, "clients").Result()
		succeeds(t, err)
		if strings.Contains(info, "blocked_clients:1\r\n") {
			return
		}
	}
}

func TestBlockingCommands(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		for _, one := range []struct {
			wait func() (any, error)
			push func() error
			want any
		}{
			{func() (any, error) { return c.BLPop(ctx, 0, "l", "m").Result() },
				func() error { return c.RPush(ctx, "m", "x").Err() }, []string{"m", "x"}},
			{func() (any, error) { return c.BLMove(ctx, "l", "o", "LEFT", "LEFT", 0).Result() },
				func() error { return c.RPush(ctx, "l", "x").Err() }, "x"},
			{func() (any, error) { return c.BZPopMin(ctx, 0, "z").Result() },
				func() error { return c.ZAdd(ctx, "z", redis.Z{Score: 2, Member: "a"}).Err() },
				&redis.ZWithKey{Z: redis.Z{Score: 2, Member: "a"}, Key: "z"}},
			{func() (any, error) {
				return c.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 0}).Result()
			},
				func() error {
					return c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "7-1", Values: []any{"n", "1"}}).Err()
				},
				[]redis.XStream{{Stream: "s", Messages: []redis.XMessage{
					{ID: "7-1", Values: map[string]any{"n": "1"}}}}}},
		} {
			var found any
			var err error
			done := make(chan struct{})
			go func() {
				found, err = one.wait()
				close(done)
			}()
			blocked(t, ctx, c)
			succeeds(t, one.push())
			<-done
			succeeds(t, err)
			if !reflect.DeepEqual(found, one.want) {
				t.Fatalf("found %v, expected %v", found, one.want)
			}
		}
	})
}

func TestScanIterators(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for number := range 700 {
				pipe.Set(ctx, fmt.Sprint("key:", number), number, 0)
				pipe.HSet(ctx, "h", fmt.Sprint("f", number), number)
				pipe.SAdd(ctx, "s", number)
				pipe.ZAdd(ctx, "z", redis.Z{Score: float64(number), Member: number})
			}
			return nil
		})
		succeeds(t, err)
		for _, one := range []struct {
			iterator *redis.ScanIterator
			count    int
		}{
			{c.Scan(ctx, 0, "key:*", 50).Iterator(), 700},
			{c.ScanType(ctx, 0, "*", 50, "zset").Iterator(), 1},
			{c.HScan(ctx, "h", 0, "", 20).Iterator(), 1400},
			{c.SScan(ctx, "s", 0, "", 20).Iterator(), 700},
			{c.ZScan(ctx, "z", 0, "", 20).Iterator(), 1400},
		} {
			count := 0
			for one.iterator.Next(ctx) {
				count++
			}
			succeeds(t, one.iterator.Err())
			if count != one.count {
				t.Fatalf("found %d of %d", count, one.count)
			}
		}
	})
}

func TestUsersAndErrors(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		protocol := c.Options().Protocol
		equal(t, c.ACLSetUser(ctx, "app", "reset", "on", ">secret", "~app:*", "+get", "+set", "+ping"), "OK")
		login := func(password string) *redis.Client {
			return connect(t, protocol, func(options *redis.Options) {
				options.Username, options.Password = "app", password
			})
		}
		user := login("secret")
		equal(t, user.Set(ctx, "app:k", "v", 0), "OK")
		fails(t, user.Get(ctx, "other"), "NOPERM")
		fails(t, user.FlushAll(ctx), "NOPERM")
		fails(t, login("wrong").Ping(ctx), "WRONGPASS")
		equal(t, c.ACLDelUser(ctx, "app"), 1)

		equal(t, c.Set(ctx, "string", "x", 0), "OK")
		fails(t, c.LPush(ctx, "string", "x"), "WRONGTYPE")
		fails(t, c.Incr(ctx, "string"), "not an integer")
		fails(t, c.Do(ctx, "NOSUCH"), "unknown command")
		fails(t, c.Do(ctx, "GET"), "wrong number of arguments")
		fails(t, c.Rename(ctx, "missing", "x"), "no such key")
		fails(t, c.Eval(ctx, "return 1", nil), "runs no scripts")
		fails(t, c.ClusterInfo(ctx), "unknown command")
		equal(t, c.Ping(ctx), "PONG")
	})
}

func TestDatabasesAndDumps(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		equal(t, c.Set(ctx, "a", "1", time.Minute), "OK")
		equal(t, c.Copy(ctx, "a", "b", 3, false), 1)
		other := connect(t, c.Options().Protocol, func(options *redis.Options) { options.DB = 3 })
		equal(t, other.Get(ctx, "b"), "1")
		dump, err := c.Dump(ctx, "a").Result()
		succeeds(t, err)
		equal(t, c.RestoreReplace(ctx, "c", 0, dump), "OK")
		equal(t, c.Get(ctx, "c"), "1")
		equal(t, c.Move(ctx, "c", 4), true)
		equal(t, c.DBSize(ctx), 1)
		equal(t, c.ConfigGet(ctx, "appendfsync"), map[string]string{"appendfsync": "everysec"})
		succeeds(t, c.ClientID(ctx).Err())
	})
}
