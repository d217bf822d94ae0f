#!/bin/sh
# ladder.sh DIR SECONDS: writes a ladder of 180p, 270p and 360p at 0.2, 0.6 and 1.5 Mbit/s, live.
set -eu
picture="testsrc2=size=640x360:rate=30,drawtext=text='%{pts\:hms}':fontsize=48:x=20:y=20:fontcolor=white:box=1:boxcolor=black"
rate() { echo "-b:v:$1 $2k -maxrate:v:$1 $2k -bufsize:v:$1 $2k"; }
# shellcheck disable=SC2046
exec ffmpeg -v error -nostdin -re -f lavfi -i "$picture" -t "$2" \
    -filter_complex '[0:v]split=3[a][b][c];[b]scale=480:270[d];[c]scale=320:180[e]' \
    -map '[e]' -map '[d]' -map '[a]' -c:v libx264 -preset ultrafast -tune zerolatency \
    -g 30 -keyint_min 30 -sc_threshold 0 $(rate 0 200) $(rate 1 600) $(rate 2 1500) \
    -f hls -hls_time 1 -hls_list_size 12 -hls_segment_type fmp4 \
    -hls_flags independent_segments+temp_file+delete_segments+program_date_time \
    -hls_fmp4_init_filename init_%v.mp4 -master_pl_name master.m3u8 \
    -var_stream_map 'v:0,name:180p v:1,name:270p v:2,name:360p' \
    -hls_segment_filename "$1/v%v/seg_%05d.m4s" "$1/v%v/index.m3u8"
